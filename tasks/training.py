"""Training one arm: start, read, mix, train, settle. The only way from private rows to weights."""

from __future__ import annotations

from typing import Any

import torch
from prefect import task
from prefect.cache_policies import NO_CACHE
from torch import nn

from privacy.heads import build_head
from privacy.mixing import build, fit_public
from privacy.noise import NoiseSource
from privacy.plan import Plan
from privacy.training import Trained, make_units, train
from storage.ledger import ReadGrant
from storage.runs import RunFolder
from tasks.embedding import EncoderOptions
from tasks.installation import Installation
from tasks.planning import PUBLIC_ONLY, PURPOSES
from tasks.private_data import load_records, trust_zone
from tasks.progress import stage
from tasks.public import PublicSet, load_public


def fresh_head(plan: Plan) -> nn.Module:
    """The plan's head before any data."""
    return build_head(
        plan.head, feature_dimension=plan.feature_dimension, classes=len(plan.classes)
    )


def starting_head(plan: Plan, public: PublicSet) -> nn.Module:
    """The plan's head at the weights that its mixing strategies start from."""
    head = fresh_head(plan)
    for strategy in build(plan.mixing):
        head = strategy.start(head, public.data)
    return head


def public_of(planned: dict[str, Any], plan: Plan) -> PublicSet:
    """The public set that a planned run names."""
    sections = planned["sections"]
    return load_public(sections["corpus"], EncoderOptions(**sections["encoder"]), plan.classes)


@task(persist_result=False, cache_policy=NO_CACHE, retries=0, task_run_name="train-{arm}")
def train_arm(run_path: str, arm: str) -> None:
    """Train one arm of a reserved run on private data, at its full charge.

    The reservation is started here, by the process that reads: from that moment the charge stays,
    whatever happens. An arm that the run did not plan is left out.

    Raises:
        ReservationExpired, LedgerError: The reservation cannot be started.
    """
    run, installation = RunFolder(run_path), Installation.open()
    planned = run.read("plan")
    if arm not in planned["plans"]:
        return
    plan = Plan.from_json(planned["plans"][arm])
    public = public_of(planned, plan)
    head = starting_head(plan, public)
    evidence = installation.evidence(run)
    row = run.read("reservation")["rows"][PURPOSES[arm]]
    source = NoiseSource()
    grant = installation.ledger.start(row)
    evidence.append(
        "start",
        {"row": row, "epoch": grant.epoch, "arm": arm, "noise_commitment": source.commitment},
    )
    with trust_zone(installation, planned["dataset"], run.run_id):
        trained = _train(installation, grant, planned, plan, public, head, source)
    settled = evidence.append(
        "settlement",
        {
            "row": row,
            "epoch": grant.epoch,
            "steps": plan.steps,
            "sample_rate": plan.sample_rate,
            "noise_multiplier": plan.noise_multiplier,
            "max_grad_norm": plan.max_grad_norm,
            "divisor": plan.divisor,
            "plan_digest": plan.digest,
            "weights_digest": trained.digest,
        },
    )
    # Commit first: a fenced-out process must not leave weights behind.
    installation.ledger.commit(grant, note=f"evidence head {settled}")
    run.write_weights(arm, trained.head.state_dict())


@task(persist_result=False, cache_policy=NO_CACHE, task_run_name="train-public-only")
def train_public_only(run_path: str) -> None:
    """Fit the public-only arm, where the public corpus has labels; reads nothing private."""
    run = RunFolder(run_path)
    planned = run.read("plan")
    plan = Plan.from_json(planned["plans"]["mixed"])
    public = public_of(planned, plan)
    if len(public.labelled) >= 20:
        run.write_weights(PUBLIC_ONLY, fit_public(fresh_head(plan), public.data).state_dict())


def _train(
    installation: Installation,
    grant: ReadGrant,
    planned: dict[str, Any],
    plan: Plan,
    public: PublicSet,
    head: nn.Module,
    source: NoiseSource,
) -> Trained:
    with stage("private: reading and embedding (pace not shown)"):
        records = load_records(installation, grant, planned["blocks"], planned["sections"])
        units = make_units(
            public.views(plan.mixing, records.vectors),
            torch.from_numpy(records.labels),
            torch.from_numpy(records.units),
            records_per_unit=plan.records_per_unit,
        )
    settings = planned["sections"]["training"]
    with stage(f"private: DP-SGD, {plan.steps} declared steps", plan.steps) as update:
        return train(
            plan,
            units,
            head,
            source=source,
            count_ahead=lambda steps: installation.ledger.count(grant, steps),
            on_step=lambda step: update(step, plan.steps),
            max_physical_batch=settings["max_physical_batch"],
            device=_device(settings["device"]),
        )


def _device(wanted: str) -> str:
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return wanted

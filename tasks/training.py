"""Training one arm: start, read, mix, train, settle. The only way from private rows to weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from prefect import task
from prefect.cache_policies import NO_CACHE

from privacy.classifier import Classifier, of_plan, starting_classifier
from privacy.mixing import LEAST_LABELLED, PublicData, fit_public
from privacy.noise import NoiseSource
from privacy.plan import MixingPlan, Plan
from privacy.training import Trained, make_units, train
from storage.ledger import ReadGrant
from storage.runs import RunFolder
from tasks.attempts import make_source, one_thread, replay_key, start_entry, told
from tasks.embedding import EncoderOptions
from tasks.installation import Installation
from tasks.planning import MIXED, PUBLIC_ONLY, PURPOSES
from tasks.private_data import load_records, trust_zone
from tasks.progress import stage
from tasks.public import PublicSet, load_public


def arm_plan(planned: dict[str, Any], arm: str) -> Plan:
    """The plan that an arm follows; the public-only arm mixes nothing into nothing."""
    if arm == PUBLIC_ONLY:
        return replace(Plan.from_json(planned["plans"][MIXED]), mixing=MixingPlan())
    return Plan.from_json(planned["plans"][arm])


def load_arm(run: RunFolder, planned: dict[str, Any], arm: str) -> Classifier:
    """An arm's classifier with the weights that the run kept.

    Raises:
        RunError: They are not there.
    """
    classifier = of_plan(arm_plan(planned, arm))
    classifier.load_state_dict(run.read_weights(arm))
    return classifier.eval()


def public_classifier(plan: Plan, public: PublicData) -> Classifier:
    """A classifier of the plan's shape, fitted on labelled public data alone."""
    classifier = starting_classifier(plan, public)
    seen = PublicData(classifier.features(public.features), public.labels)
    classifier.head = fit_public(classifier.head, seen)
    return classifier


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
    classifier = starting_classifier(plan, public.data)
    evidence = installation.evidence(run)
    row = run.read("reservation")["rows"][PURPOSES[arm]]
    source = make_source(installation, run, planned, row)
    grant = installation.ledger.start(row)
    evidence.append("start", start_entry(grant, arm, source, planned))
    repeatable = bool(replay_key(planned))
    with (
        told(evidence, grant, run),
        trust_zone(installation, planned["dataset"], run.run_id),
        one_thread(wanted=repeatable),
    ):
        trained = train_on_private(
            installation,
            grant,
            planned,
            plan,
            public,
            classifier,
            source=source,
            device=_device(planned["sections"]["training"]["device"], repeatable=repeatable),
            count_ahead=lambda steps: installation.ledger.count(grant, steps),
            on_block=lambda first, last, root: evidence.append(
                "steps",
                {"row": row, "epoch": grant.epoch, "first": first, "last": last, "root": root},
            ),
        )
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
    installation.ledger.commit(grant, head=settled)
    run.write_weights(arm, Classifier(classifier.features, trained.head).state_dict())


@task(persist_result=False, cache_policy=NO_CACHE, task_run_name="train-public-only")
def train_public_only(run_path: str) -> None:
    """Fit the public-only arm, where the public corpus has labels; reads nothing private."""
    run = RunFolder(run_path)
    planned = run.read("plan")
    plan = arm_plan(planned, PUBLIC_ONLY)
    public = public_of(planned, plan)
    if len(public.labelled) >= LEAST_LABELLED:
        run.write_weights(PUBLIC_ONLY, public_classifier(plan, public.data).state_dict())


def train_on_private(
    installation: Installation,
    grant: ReadGrant,
    planned: dict[str, Any],
    plan: Plan,
    public: PublicSet,
    classifier: Classifier,
    *,
    source: NoiseSource,
    device: str,
    count_ahead: Callable[[int], None] = lambda _steps: None,
    on_block: Callable[[int, int, str], object] = lambda _first, _last, _root: None,
) -> Trained:
    """Read, mix and train one arm from `classifier`'s head on, for the holder of a grant."""
    with stage("private: reading and embedding (pace not shown)"):
        records = load_records(installation, grant, planned["blocks"], planned["sections"])
        units = make_units(
            classifier.features(public.views(plan.mixing, records.vectors)),
            torch.from_numpy(records.labels),
            torch.from_numpy(records.units),
            records_per_unit=plan.records_per_unit,
        )
    settings = planned["sections"]["training"]
    with stage(f"private: DP-SGD, {plan.steps} declared steps", plan.steps) as update:
        return train(
            plan,
            units,
            classifier.head,
            source=source,
            count_ahead=count_ahead,
            on_block=on_block,
            on_step=lambda step: update(step, plan.steps),
            max_physical_batch=settings["max_physical_batch"],
            device=device,
        )


def _device(wanted: str, *, repeatable: bool) -> str:
    if wanted == "auto":
        # A graphics card sums in an order of its own: a run that shall be repeated stays off it.
        return "cuda" if torch.cuda.is_available() and not repeatable else "cpu"
    return wanted

"""What a stranger verifies with nothing but files and a public key: runs, and the ledger's export.

No database, no settings and no private store is opened, and nothing is written: what is read is the
evidence of runs (`run`), the export of the ledger (`ledger`), and a public key. Every price is computed
again from the declared mechanism. Evidence proves consistency, not that the code ran as it says.
"""

from tasks.verification.report import Report
from tasks.verification.verify import verify_files

__all__ = ["Report", "verify_files"]

"""The formats ``ingest bill`` knows, by name."""

from __future__ import annotations

from ingest.billing.adapter import BillAdapter
from ingest.billing.alibaba import Alibaba
from ingest.billing.aws_cur import AwsCur
from ingest.billing.azure import Azure
from ingest.billing.focus import Focus
from ingest.billing.gcp import Gcp
from ingest.billing.mapped import Mapped
from ingest.billing.saas import REPORTS, VendorReport
from ingest.billing.tencent import Tencent
from ingest.billing.volcengine import Volcengine

ADAPTERS: dict[str, BillAdapter] = {
    "focus": Focus(),
    "aws-focus": Focus("aws"),
    "aws-cur": AwsCur(),
    "azure-actual": Azure("actual"),
    "azure-amortized": Azure("amortized"),
    "azure-focus": Focus("azure"),
    "gcp": Gcp(),
    "alibaba": Alibaba(),
    "volcengine": Volcengine(),
    "tencent": Tencent(),
    "mapped": Mapped(),
    **{vendor: VendorReport(vendor) for vendor in REPORTS},
}
"""``aws-cur`` reads the legacy report and CUR 2.0: their columns are spelled differently and mean the same."""

"""Every table, imported once so that ``Base.metadata`` is whole (migrations and tests import this)."""

from models.base import Base
from models.tables_access import ApiTokenRow
from models.tables_billing import BillDeliveryRow, ChargeDayRow
from models.tables_budget import BudgetOutlookRow, BudgetStatusRow
from models.tables_counters import GatewayCounterRow, GatewayCounterSeriesRow
from models.tables_decide import (
    AuditRow,
    BreakerEventRow,
    BreakerRow,
    BudgetRow,
    CapIncreaseRow,
    ExemptionRow,
    GuardRow,
    HeartbeatRow,
    OutboxRow,
    PolicyVersionRow,
    StandingLimitRow,
)
from models.tables_features import FeatureDirtyRow, FeatureFileRow, FeatureHourRow, ToolEdgeHourRow
from models.tables_fleet import FleetCheckRow
from models.tables_fleet_action import FleetActionRow, FleetSwitchRow, FleetTargetRow
from models.tables_gpu import GpuDayRow, GpuHourRow, GpuMinuteRow
from models.tables_identity import IdentityAliasRow, IdentityRuleSetRow
from models.tables_incident import IncidentMomentRow, IncidentRow
from models.tables_join import ChargeJoinRow, ChargeMatchRow, ChargeUnmatchedRow, NodeChargeRow, NodeIdentityRow
from models.tables_money import (
    LedgerDayRow,
    LedgerHeadRow,
    LedgerKindDayRow,
    LedgerKindHourRow,
    LedgerLineDayRow,
    LedgerLineMonthRow,
    LedgerLineRow,
    LedgerWindowDayRow,
    LedgerWindowRow,
    NodeServiceRow,
    RateRow,
    RunningRateRow,
)
from models.tables_narrow import (
    LedgerTeamDayRow,
    LedgerTeamHourRow,
    LedgerTeamMonthRow,
    UsageDeploymentDayRow,
    UsageDeploymentHourRow,
    UsageTeamDayRow,
    UsageTeamHourRow,
    UsageTeamMonthRow,
)
from models.tables_notify import ChannelRouteRow, ChannelRow, IncidentTicketRow
from models.tables_period import LedgerPeriodRow, PeriodLineRow, PeriodVersionRow, SharedRuleRow
from models.tables_prices import FxRateRow, RateDiscountRow
from models.tables_quality import StandingCheckRow
from models.tables_rules import AlertRow, DecisionPriceRow, RuleRow, RuleStateRow
from models.tables_usage import (
    AppliedFileRow,
    DataFaultRow,
    DirtyWindowRow,
    EngineDayRow,
    EngineHourRow,
    EngineMinuteRow,
    QuarantineRow,
    SegmentProgressRow,
    StreamStateRow,
    UsageDayRow,
    UsageHourRow,
    UsageLengthRow,
    UsageMinuteRow,
    UsageMonthRow,
)
from models.tables_vendor import BoughtHoleRow, BoughtUsageRow, VendorAliasRow, VendorPriceRow
from models.tables_workload import WorkloadClassNameRow, WorkloadModelRow

metadata = Base.metadata

__all__ = [
    "AlertRow",
    "ApiTokenRow",
    "AppliedFileRow",
    "AuditRow",
    "BillDeliveryRow",
    "BoughtHoleRow",
    "BoughtUsageRow",
    "BreakerEventRow",
    "BreakerRow",
    "BudgetOutlookRow",
    "BudgetRow",
    "BudgetStatusRow",
    "CapIncreaseRow",
    "ChannelRouteRow",
    "ChannelRow",
    "ChargeDayRow",
    "ChargeJoinRow",
    "ChargeMatchRow",
    "ChargeUnmatchedRow",
    "DataFaultRow",
    "DecisionPriceRow",
    "DirtyWindowRow",
    "EngineDayRow",
    "EngineHourRow",
    "EngineMinuteRow",
    "ExemptionRow",
    "FeatureDirtyRow",
    "FeatureFileRow",
    "FeatureHourRow",
    "FleetActionRow",
    "FleetCheckRow",
    "FleetSwitchRow",
    "FleetTargetRow",
    "FxRateRow",
    "GatewayCounterRow",
    "GatewayCounterSeriesRow",
    "GpuDayRow",
    "GpuHourRow",
    "GpuMinuteRow",
    "GuardRow",
    "HeartbeatRow",
    "IdentityAliasRow",
    "IdentityRuleSetRow",
    "IncidentMomentRow",
    "IncidentRow",
    "IncidentTicketRow",
    "LedgerDayRow",
    "LedgerHeadRow",
    "LedgerKindDayRow",
    "LedgerKindHourRow",
    "LedgerLineDayRow",
    "LedgerLineMonthRow",
    "LedgerLineRow",
    "LedgerPeriodRow",
    "LedgerTeamDayRow",
    "LedgerTeamHourRow",
    "LedgerTeamMonthRow",
    "LedgerWindowDayRow",
    "LedgerWindowRow",
    "NodeChargeRow",
    "NodeIdentityRow",
    "NodeServiceRow",
    "OutboxRow",
    "PeriodLineRow",
    "PeriodVersionRow",
    "PolicyVersionRow",
    "QuarantineRow",
    "RateDiscountRow",
    "RateRow",
    "RuleRow",
    "RuleStateRow",
    "RunningRateRow",
    "SegmentProgressRow",
    "SharedRuleRow",
    "StandingCheckRow",
    "StandingLimitRow",
    "StreamStateRow",
    "ToolEdgeHourRow",
    "UsageDayRow",
    "UsageDeploymentDayRow",
    "UsageDeploymentHourRow",
    "UsageHourRow",
    "UsageLengthRow",
    "UsageMinuteRow",
    "UsageMonthRow",
    "UsageTeamDayRow",
    "UsageTeamHourRow",
    "UsageTeamMonthRow",
    "VendorAliasRow",
    "VendorPriceRow",
    "WorkloadClassNameRow",
    "WorkloadModelRow",
    "metadata",
]  # fmt: skip

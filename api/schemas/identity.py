"""Identity rules, their versions, previews and explanations; tenants and the names gateways give them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from api.schemas.types import PRINTABLE, AmountOut, CostBasis, Reason, Time

RuleText = Annotated[str, StringConstraints(max_length=200, pattern=PRINTABLE)]
RuleName = Annotated[str, StringConstraints(min_length=1, max_length=120, pattern=PRINTABLE)]


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RuleCondition(_In):
    """All conditions of a rule must hold."""

    field: RuleText = Field(
        description="org, team, project, user, key_id, key_alias, service_tier, requested_model, model_id, cluster, namespace, "
        "gateway, tag, tag.NAME, header.NAME or metadata.NAME, as the source said them.",
        examples=["key_alias"],
    )
    op: Literal["exact", "prefix", "glob", "regex"] = "exact"
    value: RuleText = Field(
        description="A regex must fit the whole value; single characters may repeat, groups may not. An exact '' holds where the "
        "source said nothing.",
        examples=["search-"],
    )


class PathParts(_In):
    org: RuleText | None = None
    team: RuleText | None = None
    project: RuleText | None = None
    user: RuleText | None = None


class RuleSets(PathParts):
    """Templates: `$1` or `${name}` is what a regex of the rule caught, `$$` a dollar."""

    service_tier: RuleText | None = Field(None, description="P0, P1, P2 or a caught group.")


class IdentityRule(_In):
    name: RuleName
    when: Annotated[list[RuleCondition], Field(min_length=1, max_length=10)]
    set: RuleSets
    then: Literal["stop", "continue"] = "stop"


class IdentityRuleSet(_In):
    """Ordered rules. A rule whose result cannot be a name or a tier does not apply."""

    start: Literal["said", "empty"] = Field("said", description="Where a path starts: as the source said it, or empty.")
    default: PathParts = Field(
        default_factory=lambda: PathParts(org="unassigned"), description="Fills the parts that are empty at the end."
    )
    rules: Annotated[list[IdentityRule], Field(max_length=500)] = Field(default_factory=list)
    gateway_sets: Annotated[list[RuleText], Field(max_length=50)] = Field(
        default_factory=list,
        description="Of `user`, `tag`, `tag.NAME`, `header.NAME`, `metadata.NAME`: those the gateway sets itself, whatever the "
        "client wrote. Guards refuse by these; all others count in the figures alone.",
        examples=[["header.x-team"]],
    )

    def plain(self) -> dict[str, Any]:
        """As ``core.identity_codec`` reads it."""
        return self.model_dump(exclude_none=True)


class RulesVersionOut(BaseModel):
    """`version` 0: no rules were published, sources are taken at their word."""

    version: int
    valid_from: Time | None
    created_at: Time | None
    author: str
    reason: str
    digest: str
    in_force: bool = Field(description="Whether records that finish now are mapped by it.")
    rules: IdentityRuleSet


class RulesIn(_In):
    rules: IdentityRuleSet
    reason: Reason
    valid_from: Time | None = Field(None, description="Left out: the next whole minute that all processes can know.")
    restate: bool = Field(False, description="Ask for the past to be restated; refused (422) in this version.")


class RulesPublished(RulesVersionOut):
    changed: bool = Field(description="false: the newest version says the same already.")


class RuleVersionsOut(BaseModel):
    versions: list[RulesVersionOut] = Field(description="Newest first.")
    in_force: int = Field(description="The version that maps records finishing now; 0: none.")


class WorkOut(BaseModel):
    """`costs` by currency; empty where nothing of it is priced."""

    requests: int
    tokens: dict[str, int] = Field(description="input (uncached and cache writes), input_cached, output.")
    costs: dict[str, AmountOut]


class PathOut(BaseModel):
    org: str
    team: str
    project: str
    user: str
    service_tier: str


class MoveOut(BaseModel):
    """Without `source` and `target`: the sum of what the list has no room for."""

    source: PathOut | None
    target: PathOut | None
    work: WorkOut


class PreviewIn(_In):
    rules: IdentityRuleSet
    since: Time | None = Field(None, alias="from", description="Left out: 7 days before `to`.")
    until: Time | None = Field(None, alias="to", description="Left out: now.")
    basis: CostBasis = "allocation"


class PreviewOut(BaseModel):
    """What the rules would make of archived requests. total = moved + kept; the moves add up to moved, exactly."""

    window_start: Time
    window_end: Time
    basis: CostBasis
    total: WorkOut
    moved: WorkOut
    kept: WorkOut
    unmatched: WorkOut = Field(description="No rule applies to it: the default alone (part of moved or kept).")
    moves: list[MoveOut]
    by_rule: dict[str, int] = Field(description="Requests each rule applies to.")
    cost_reason: str = Field(description="Why costs are missing; else empty.")
    uncounted_costs: dict[str, AmountOut] = Field(description="Ledger cost whose requests are not in the archive.")


class RecordTestIn(_In):
    """`record` is a `usage/1` record; what identity rules look at is enough."""

    record: dict[str, Any]
    rules: IdentityRuleSet | None = Field(None, description="Left out: those in force now.")


class StepOut(BaseModel):
    rule: str
    outcome: Literal["applied", "no match", "not a name", "not reached"]
    why: str


class RecordTestOut(BaseModel):
    result: PathOut
    key_id: str
    matched: list[str]
    by_default: list[str]
    steps: list[StepOut]


class TenantOut(BaseModel):
    org: str | None = None
    team: str | None = None
    project: str | None = None
    user: str | None = None
    key_id: str | None = None
    service_tier: str | None = None
    name: str = Field(description="What the gateway calls its key, else its user; may be empty.")
    requests: int
    last_seen: Time
    costs: dict[str, AmountOut]
    cost_reason: str


class TenantsOut(BaseModel):
    rows: list[TenantOut]
    total_rows: int
    window_start: Time
    window_end: Time
    basis: CostBasis


class AliasOut(BaseModel):
    source: str
    kind: Literal["key", "team", "user", "org"]
    external_id: str
    alias: str
    team_id: str
    user_id: str
    org_id: str
    valid_from: Time
    valid_to: Time | None


class AliasesOut(BaseModel):
    aliases: list[AliasOut]
    total_rows: int

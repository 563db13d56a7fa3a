"""Why the capacity cost of one period differs from another's, from the total down; formulas in docs/explain.md.

Per deployment: cost = period hours x price of a GPU-hour x GPUs in service. The GPUs are read in two ways that each add up to
them: as bought (serving, starting) and as used (tokens x seconds a token, waste, unattributed, idle, starting).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

from core.money import ZERO, total
from core.shapley import known_pair, round_parts, shapley
from core.unit_cost import TOKEN_KINDS
from core.windows import Window

US_PER_HOUR = 3_600_000_000
WORK_FACTORS = ("volume", "mix", "cache", "speed")
TIME_FACTORS = ("waste", "unattributed", "idle", "starting")
USE_EFFECTS = (*WORK_FACTORS, *TIME_FACTORS)
"""The GPUs in service as they were used; their effects add up to the effect of the node-hours."""
EFFECTS = ("new", "retired", "currency", "unsplit", "bought", "bought_rate", "days", "rate", *USE_EFFECTS)
"""Every effect; they add up to the change."""


@dataclass(frozen=True, slots=True)
class DeploymentUse:
    """A deployment's closed, priced quarter hours of a period, in one currency.

    ``served`` and ``tokens`` by token kind (``input``, ``input_cached``, ``output``); ``gpu_us`` is reserved GPU time in
    microseconds, 0 where the inventory does not tell. Every other amount is cost before anybody bears idle time.
    """

    gpu_us: int
    served: Mapping[str, Decimal] = field(default_factory=dict)
    tokens: Mapping[str, int] = field(default_factory=dict)
    wasted: Decimal = ZERO
    unattributed: Decimal = ZERO
    idle: Decimal = ZERO
    starting: Decimal = ZERO
    gpu_types: tuple[str, ...] = ()
    price_sources: tuple[str, ...] = ()

    @property
    def cost(self) -> Decimal:
        return total([*self.served.values(), self.wasted, self.unattributed, self.idle, self.starting])


@dataclass(frozen=True, slots=True)
class Change:
    """From one cost to the other; ``effects`` holds every name of ``EFFECTS`` and adds up to the change exactly."""

    before: Decimal
    after: Decimal
    effects: Mapping[str, Decimal]

    @property
    def change(self) -> Decimal:
        return total([self.after, -self.before])

    @property
    def node_hours(self) -> Decimal:
        """Effect of more or fewer GPUs in service in deployments of both periods."""
        return total(self.effects[name] for name in USE_EFFECTS)

    @property
    def scale(self) -> Decimal:
        """Effect of the GPUs that served or stood ready: node-hours without starting/unserved."""
        return total([self.node_hours, -self.effects["starting"]])

    def __add__(self, other: Change) -> Change:
        effects = {name: total([self.effects[name], other.effects[name]]) for name in EFFECTS}
        return Change(total([self.before, other.before]), total([self.after, other.after]), effects)


NO_CHANGE = Change(ZERO, ZERO, dict.fromkeys(EFFECTS, ZERO))


@dataclass(frozen=True, slots=True)
class _Rates:
    """GPUs in service of one period by what they did, and what a served token took. GPUs are GPU time over period time."""

    price: Fraction
    tokens: Fraction
    output_share: Fraction | None
    hit_rate: Fraction | None
    speed: Mapping[str, Fraction | None]
    time: Mapping[str, Fraction]


def explain_deployment(
    before: DeploymentUse | None,
    after: DeploymentUse | None,
    first: Window,
    second: Window,
    *,
    other_currency: bool = False,
    is_bought: bool = False,
) -> Change:
    """The change of one deployment's cost in one currency from ``first`` to ``second``; None: no cost in that period.

    A deployment of one period alone is ``new`` or ``retired`` whole (``currency``, where the other period has it in another
    one); with cost but without GPU time in either it is ``unsplit``. ``is_bought``: tokens of a vendor's API, split into how many
    of which kind and their price. Exchanging the periods negates every effect, and
    exchanges ``new`` and ``retired``.
    """
    costs = (before.cost if before else ZERO, after.cost if after else ZERO)
    change = total([costs[1], -costs[0]])
    if before is None or after is None:
        named = "currency" if other_currency else "new" if before is None else "retired"
        return Change(*costs, {**NO_CHANGE.effects, named: change})
    if is_bought:
        return Change(*costs, {**NO_CHANGE.effects, **round_parts(change, _bought_effects(before, after))})
    if not before.gpu_us or not after.gpu_us:
        return Change(*costs, {**NO_CHANGE.effects, "unsplit": change})
    hours = (_hours(first), _hours(second))
    rates = (_rates(before, hours[0]), _rates(after, hours[1]))
    gpus = tuple(use.gpu_us / hour / US_PER_HOUR for use, hour in zip((before, after), hours, strict=True))
    exact = _top(hours, (rates[0].price, rates[1].price), (gpus[0], gpus[1]))
    top = round_parts(change, exact)
    per_gpu = _top(hours, (rates[0].price, rates[1].price), (Fraction(0), Fraction(1)))["node_hours"]
    used = {name: effect * per_gpu for name, effect in _use_effects(*rates).items()}
    node_hours = top.pop("node_hours")
    return Change(*costs, {**NO_CHANGE.effects, **top, **round_parts(node_hours, used)})


def total_change(changes: Iterable[Change]) -> Change:
    """Deployments added up: parts are explained and then summed, so they add up to the whole."""
    return sum(changes, NO_CHANGE)


def _bought_effects(before: DeploymentUse, after: DeploymentUse) -> dict[str, Fraction]:
    """Cost of a kind = tokens x price of a token, two factors; what failed requests and requests without tokens cost counts
    as what was bought."""
    tokens = [{kind: Fraction(use.tokens.get(kind, 0)) for kind in TOKEN_KINDS} for use in (before, after)]
    prices = {
        kind: known_pair(*(Fraction(use.served.get(kind, ZERO)) / n[kind] if n[kind] else None
                       for use, n in zip((before, after), tokens, strict=True)))
        for kind in TOKEN_KINDS
    }  # fmt: skip

    def cost(changed: frozenset[str]) -> Fraction:
        counts = tokens["bought" in changed]
        return sum((counts[kind] * prices[kind]["bought_rate" in changed] for kind in TOKEN_KINDS), Fraction(0))

    effects = shapley(("bought", "bought_rate"), cost)
    effects["bought"] += Fraction(total([after.cost, -before.cost])) - sum(effects.values(), Fraction(0))
    return effects


def _hours(window: Window) -> Fraction:
    return Fraction(window.duration // timedelta(microseconds=1), US_PER_HOUR)


def _top(
    hours: tuple[Fraction, Fraction], price: tuple[Fraction, Fraction], gpus: tuple[Fraction, Fraction]
) -> dict[str, Fraction]:
    def cost(changed: frozenset[str]) -> Fraction:
        return hours["days" in changed] * price["rate" in changed] * gpus["node_hours" in changed]

    return shapley(("days", "rate", "node_hours"), cost)


def _rates(use: DeploymentUse, hours: Fraction) -> _Rates:
    price = Fraction(use.cost) * US_PER_HOUR / use.gpu_us
    gpus = use.gpu_us / hours / US_PER_HOUR
    tokens = {kind: use.tokens.get(kind, 0) for kind in TOKEN_KINDS}
    read = tokens["input"] + tokens["input_cached"]
    per_gpu = price * hours
    silent = total(cost for kind, cost in use.served.items() if not tokens.get(kind))
    time = {
        "waste": _share(use.wasted, per_gpu),
        "unattributed": _share(total([use.unattributed, silent]), per_gpu),
        "starting": _share(use.starting, per_gpu),
        "idle": _share(use.idle, per_gpu) if per_gpu else gpus,
    }
    speed = {
        kind: _share(use.served.get(kind, ZERO), per_gpu) * hours / count if count else None for kind, count in tokens.items()
    }
    whole = read + tokens["output"]
    return _Rates(
        price,
        whole / hours,
        Fraction(tokens["output"], whole) if whole else None,
        Fraction(tokens["input_cached"], read) if read else None,
        speed,
        time,
    )


def _share(cost: Decimal, per_gpu: Fraction) -> Fraction:
    return Fraction(cost) / per_gpu if per_gpu else Fraction(0)


def _use_effects(before: _Rates, after: _Rates) -> dict[str, Fraction]:
    """Effects on the number of GPUs in service, of each way in which they were used."""
    volume = (before.tokens, after.tokens)
    mix = known_pair(before.output_share, after.output_share)
    cache = known_pair(before.hit_rate, after.hit_rate)
    speed = {kind: known_pair(before.speed[kind], after.speed[kind]) for kind in TOKEN_KINDS}

    def served(changed: frozenset[str]) -> Fraction:
        output, cached = mix["mix" in changed], cache["cache" in changed]
        shares = {"input": (1 - output) * (1 - cached), "input_cached": (1 - output) * cached, "output": output}
        per_token = sum((share * speed[kind]["speed" in changed] for kind, share in shares.items()), Fraction(0))
        return volume["volume" in changed] * per_token

    times = {name: after.time[name] - before.time[name] for name in TIME_FACTORS}
    return {**shapley(WORK_FACTORS, served), **times}

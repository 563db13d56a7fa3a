"""Which three-letter codes are currencies: those of ISO 4217 in use, without funds, metals and codes that mean none."""

from __future__ import annotations

from difflib import get_close_matches

from core.errors import BadInput

_CODES = """
AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CLP CNY COP CRC
CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK
JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR
MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP
STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VED VES VND VUV WST XAF XCD XCG XOF XPF YER ZAR ZMW
ZWG
"""
CURRENCIES = frozenset(_CODES.split())


def require_currency(code: str, field: str = "currency") -> str:
    """The code itself. Raises BadInput, naming ``field``, for what is no currency in use."""
    if code in CURRENCIES:
        return code
    near = get_close_matches(code.upper(), sorted(CURRENCIES), n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else "write an ISO 4217 code such as USD, EUR or CNY"
    raise BadInput("is not a currency of ISO 4217", field=field, value=code, hint=hint)

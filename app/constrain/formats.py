"""Patterns of whole strings for the values of `format`: OpenAI's for strict schemas, and some more."""

_D = "[0-9]"
_DATE = (
    rf"({_D}{{4}}-(((0[13578]|1[02])-(0[1-9]|[12]{_D}|3[01]))|((0[469]|11)-(0[1-9]|[12]{_D}|30))|"
    rf"(02-(0[1-9]|1{_D}|2[0-8])))|({_D}{{2}}(0[48]|[2468][048]|[13579][26])|"
    r"(0[48]|[2468][048]|[13579][26]|00)00)-02-29)"
)
_TIME = rf"([01]{_D}|2[0-3]):[0-5]{_D}:[0-5]{_D}(\.{_D}+)?([Zz]|[-+]([01]{_D}|2[0-3]):[0-5]{_D})"
_BYTE = rf"(25[0-5]|2[0-4]{_D}|1{_D}{{2}}|[1-9]?{_D})"
_IPV4 = rf"{_BYTE}(\.{_BYTE}){{3}}"
_H16 = "[0-9A-Fa-f]{1,4}"
_LABEL = "[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(\.{_LABEL})*"
_ATOM = r"[-A-Za-z0-9!#$%&'*+/=?^_`{|}~]+"
_CHAR = r"([-A-Za-z0-9._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})"
_LS32 = rf"({_H16}:{_H16}|{_IPV4})"
_IPV6 = "|".join(  # RFC 3986, by the number of groups before "::"
    [
        rf"({_H16}:){{6}}{_LS32}",
        rf"::({_H16}:){{5}}{_LS32}",
        rf"({_H16})?::({_H16}:){{4}}{_LS32}",
        rf"(({_H16}:){{0,1}}{_H16})?::({_H16}:){{3}}{_LS32}",
        rf"(({_H16}:){{0,2}}{_H16})?::({_H16}:){{2}}{_LS32}",
        rf"(({_H16}:){{0,3}}{_H16})?::{_H16}:{_LS32}",
        rf"(({_H16}:){{0,4}}{_H16})?::{_LS32}",
        rf"(({_H16}:){{0,5}}{_H16})?::{_H16}",
        rf"(({_H16}:){{0,6}}{_H16})?::",
    ]
)
_DURATION_TIME = rf"T({_D}+H({_D}+M({_D}+S)?)?|{_D}+M({_D}+S)?|{_D}+S)"

FORMATS: dict[str, str] = {
    "date": _DATE,
    "time": _TIME,
    "date-time": rf"{_DATE}[Tt]{_TIME}",
    "duration": rf"P({_D}+W|({_D}+Y({_D}+M({_D}+D)?)?|{_D}+M({_D}+D)?|{_D}+D)({_DURATION_TIME})?|{_DURATION_TIME})",
    "email": rf"{_ATOM}(\.{_ATOM})*@{_HOST}",
    "hostname": _HOST,
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "uuid": r"[0-9A-Fa-f]{8}-([0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}",
    "uri": rf"[A-Za-z][-A-Za-z0-9+.]*:(//{_CHAR}*)?(/?({_CHAR}+(/{_CHAR}*)*)?)(\?({_CHAR}|[/?])*)?(#({_CHAR}|[/?])*)?",
    "json-pointer": r"(/([^~/]|~[01])*)*",
}

"""Hardware and fabrics that are known without measuring: one readable file, its nouns, and a roofline over them."""

from headway.core.catalogue.catalogue import Catalogue
from headway.core.catalogue.device import Device, Link, Node, Practice
from headway.core.catalogue.figure import Curve, Figure, Provenance
from headway.core.catalogue.reader import built_in_catalogue, parse_catalogues, read_catalogue
from headway.core.catalogue.roofline import OperatorTime, OperatorWork, operator_time, share_at

__all__ = [
    "Catalogue",
    "Curve",
    "Device",
    "Figure",
    "Link",
    "Node",
    "OperatorTime",
    "OperatorWork",
    "Practice",
    "Provenance",
    "built_in_catalogue",
    "operator_time",
    "parse_catalogues",
    "read_catalogue",
    "share_at",
]

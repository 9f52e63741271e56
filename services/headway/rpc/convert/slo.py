"""Converts latency objectives (SLOs)."""

from headway.core.slo import Slo
from headway.v1 import common_pb2


def slo_to_pb(slo: Slo) -> common_pb2.Slo:
    return common_pb2.Slo(ttft_s=slo.ttft_s, tpot_s=slo.tpot_s, e2e_s=slo.e2e_s)


def slo_from_pb(message: common_pb2.Slo) -> Slo:
    return Slo(**{field.name: value for field, value in message.ListFields()})

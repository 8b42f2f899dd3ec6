"""`bench big`: models that one machine does not hold, made up here, so that nothing needs to be fetched."""

from __future__ import annotations

import shutil

from fleetchat.bench.big_chain import measure_chain
from fleetchat.bench.big_plan import BigPlan, lacking
from fleetchat.bench.big_stages import measure_stages
from fleetchat.bench.report import Report
from fleetchat.bench.setting import Setting
from fleetchat.errors import BuildError

FOLDER = "fleetchat-big"  # everything is made in there, and it is removed as a whole
FREE_ROOM = "free some room, or choose another place with --folder"


async def measure_big(setting: Setting, plan: BigPlan) -> Report:
    """Rows `big.…` of a whole chain, or of one stage after the other when no machine here holds the model.

    The latter is skipped, with a note, where there is too little room. Raises FleetchatError.
    """
    missing = lacking(plan)
    if missing is not None and not plan.one_by_one:
        raise BuildError(f"{plan.shape.name} cannot be measured here: {missing}", hint=FREE_ROOM)
    if missing is not None:
        return Report(
            f"{plan.shape.name}, one stage at a time", "", "", "", (), (f"skipped: {missing}; {FREE_ROOM}",)
        )
    try:
        return await (measure_stages if plan.one_by_one else measure_chain)(setting, plan)
    finally:
        if not plan.keep:
            shutil.rmtree(plan.folder, ignore_errors=True)

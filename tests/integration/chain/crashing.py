"""A process that sends what was decided and kills itself at a given point: `python -m … URL DSN FOLDER CHECKPOINT`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from sparewatt.chain.outbox import OutboxSender
from sparewatt.chain.signer import TransactionSigner
from tests.integration.chain.setting import DEPTH, OPERATOR, ROUNDS_MAX, open_setting


def crash_at(wanted: str, reached: str) -> None:
    if reached == wanted:
        os.kill(os.getpid(), signal.SIGKILL)


async def send_and_crash(url: str, dsn: str, folder: str, checkpoint: str) -> None:
    async with open_setting(url, dsn, Path(folder)) as setting:
        setting.sender = OutboxSender(
            setting.client,
            setting.store,
            TransactionSigner([OPERATOR]),
            chain_id=setting.record.chain_id,
            depth=DEPTH,
            checkpoint=lambda reached: crash_at(checkpoint, reached),
        )
        for _ in range(ROUNDS_MAX):
            await setting.round()


if __name__ == "__main__":
    asyncio.run(send_and_crash(*sys.argv[1:]))

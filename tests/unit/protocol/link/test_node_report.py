from __future__ import annotations

import pytest

from sparewatt.protocol.link.node_report import NodeLoad


@pytest.mark.parametrize("news", [NodeLoad(foreign=1), NodeLoad(draining=True), NodeLoad(foreign_models=("m",))])
def test_a_load_change_that_a_gateway_cannot_know_is_news(news: NodeLoad) -> None:
    assert news.is_news_after(NodeLoad())
    assert NodeLoad().is_news_after(news)
    assert not news.is_news_after(news)


def test_a_change_by_the_gateways_own_jobs_is_no_news() -> None:
    assert not NodeLoad(running=3, queued=2, prefill_share=0.5).is_news_after(NodeLoad())

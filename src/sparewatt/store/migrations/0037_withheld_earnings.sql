-- Since when earnings are withheld: how much there was when it was last looked at. What has waited for a day without a
-- verdict is paid, for a node cannot help it if nobody could check it.
CREATE TABLE withheld_marks (
    account text PRIMARY KEY,
    nano    bigint NOT NULL,
    at      timestamptz NOT NULL
);

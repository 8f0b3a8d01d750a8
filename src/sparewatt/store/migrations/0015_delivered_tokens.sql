-- What owners delivered of each model, by day, as it was billed: the weight of their prices in a model's usual price.
-- Bounded by its retention. What an owner bought from his own nodes is left out.
CREATE TABLE delivered_tokens (
    model  text NOT NULL,
    owner  text NOT NULL,
    day    date NOT NULL,
    tokens bigint NOT NULL CHECK (tokens >= 0),
    PRIMARY KEY (model, owner, day)
);
CREATE INDEX delivered_tokens_by_day ON delivered_tokens (day);

-- Deployments that a network has left because a new release has other contracts. The pool of the next one is covered
-- for credits that were deposited before.
CREATE TABLE chain_restarts (
    number     int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    abandoned  text NOT NULL UNIQUE,
    at         timestamptz NOT NULL DEFAULT now(),
    covered_at timestamptz
);

-- What a person must mend before the chain's process can work, in words; no row while it can.
CREATE TABLE chain_problem (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    problem  text NOT NULL
);

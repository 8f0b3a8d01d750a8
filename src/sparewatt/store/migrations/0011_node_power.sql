-- What nodes drew while they worked for the network, by day: energy and the seconds it is of, as they measured it
-- themselves. It is shown to their owners and changes no account.
CREATE TABLE node_power (
    node_id   text NOT NULL REFERENCES nodes (id),
    day       date NOT NULL,
    joules    double precision NOT NULL CHECK (joules >= 0),
    working_s double precision NOT NULL CHECK (working_s >= 0),
    PRIMARY KEY (node_id, day)
);

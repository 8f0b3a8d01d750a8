-- When a node first finished a job. One that never did is forgotten a day after it left: its specs become null, its
-- registration stays, so that its key can join again. Nodes from before are taken to have served.
ALTER TABLE nodes ADD COLUMN served_at timestamptz;
UPDATE nodes SET served_at = now();

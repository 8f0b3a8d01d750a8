import { Link } from "wouter";

/** Where the whole line is made: it installs the agent and carries a token, so there is no shorter one to copy. */
export function JoinHint() {
  return (
    <p className="text-muted">
      The{" "}
      <Link href="/join" className="link">
        Join page
      </Link>{" "}
      makes the line for a machine: it installs the agent and brings your token.
    </p>
  );
}

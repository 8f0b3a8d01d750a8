import { Link } from "wouter";
import { CopyLine } from "./CopyLine";

/** Where the whole line is made: it installs the agent and carries a token, so there is no shorter one to copy. */
export function JoinHint() {
  return (
    <div className="space-y-2">
      <p className="text-muted">
        The{" "}
        <Link href="/join" className="link">
          Join page
        </Link>{" "}
        makes the line for a machine: it installs the agent and brings your token. So does, where you are logged in:
      </p>
      <CopyLine label="make a join line" text="sparewatt node token" />
    </div>
  );
}

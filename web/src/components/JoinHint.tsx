import { Link } from "wouter";
import { CopyableText } from "./CopyableText";

/** Says where to get a join line. There is no fixed one to copy: each carries a token of its own. */
export function JoinHint() {
  return (
    <div className="space-y-2">
      <p className="text-muted">
        The{" "}
        <Link href="/join" className="link">
          Join page
        </Link>{" "}
        makes a line that you run on the machine: it installs the agent and carries your token. In a terminal where you are logged in, this makes one too:
      </p>
      <CopyableText label="make a join line" text="sparewatt node token" />
    </div>
  );
}

import { Link } from "wouter";
import { Page } from "@/parts/Page";

export function NotHere() {
  return (
    <Page title="There is no such page" lead="The address may be mistyped, or of another version.">
      <Link href="/" className="link">
        To the network
      </Link>
    </Page>
  );
}

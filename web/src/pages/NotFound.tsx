import { Link } from "wouter";
import { Page } from "@/components/Page";

export function NotFound() {
  return (
    <Page title="There is no such page" lead="The address may be mistyped, or belong to another version.">
      <Link href="/" className="link">
        Go to the network
      </Link>
    </Page>
  );
}

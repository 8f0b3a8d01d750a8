import { useMe } from "@/api/queries";
import { EmptyState } from "@/components/Notice";
import { Page } from "@/components/Page";
import { Accounts } from "./operator/Accounts";
import { Books } from "./operator/Books";
import { Invitations } from "./operator/Invitations";
import { Payouts } from "./operator/Payouts";
import { Treasury } from "./operator/Treasury";
import { UptimeFund } from "./operator/UptimeFund";

/** What the network's operator sees and does: the same as `sparewatt accounts`, `ledger`, `treasury` and `payouts`. */
export default function Operator() {
  const me = useMe();
  if (!me.data) return null;
  if (me.data.role !== "operator")
    return (
      <Page title="Operate">
        <EmptyState title="This page is for operators of the network">
          <p className="text-muted">
            You are logged in as {me.data.account.email ?? me.data.account.name}. Whoever runs the network opens it with the link that sparewatt dashboard --as operator prints.
          </p>
        </EmptyState>
      </Page>
    );
  return (
    <Page title="Operate" lead="Whose network this is, whether its books are in order, and who may use it.">
      <Books />
      <Accounts />
      <Invitations />
      <Treasury />
      <UptimeFund />
      <Payouts />
    </Page>
  );
}

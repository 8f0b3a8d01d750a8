import { lazy, Suspense, type ReactNode } from "react";
import { Route, Switch } from "wouter";
import { Loading } from "./components/Notice";
import { Network } from "./pages/Network";
import { NotFound } from "./pages/NotFound";
import { RequireLogin } from "./shell/RequireLogin";
import { Shell } from "./shell/Shell";

const Account = lazy(() => import("./pages/Account"));
const Earnings = lazy(() => import("./pages/Earnings"));
const Join = lazy(() => import("./pages/Join"));
const Keys = lazy(() => import("./pages/Keys"));
const Lease = lazy(() => import("./pages/Lease"));
const Leases = lazy(() => import("./pages/Leases"));
const Login = lazy(() => import("./pages/Login"));
const Market = lazy(() => import("./pages/Market"));
const Matching = lazy(() => import("./pages/Matching"));
const Models = lazy(() => import("./pages/Models"));
const Node = lazy(() => import("./pages/Node"));
const Nodes = lazy(() => import("./pages/Nodes"));
const Operator = lazy(() => import("./pages/Operator"));
const Playground = lazy(() => import("./pages/Playground"));
const Status = lazy(() => import("./pages/Status"));
const Usage = lazy(() => import("./pages/Usage"));
const Validators = lazy(() => import("./pages/Validators"));

export function App() {
  return (
    <Shell>
      <Suspense fallback={<Loading />}>
        <Switch>
          <Route path="/" component={Network} />
          <Route path="/matching/:id?">{({ id }) => <Matching id={id ?? null} />}</Route>
          <Route path="/models" component={Models} />
          <Route path="/status" component={Status} />
          <Route path="/login">
            <Login kind="login" />
          </Route>
          <Route path="/signup">
            <Login kind="signup" />
          </Route>
          <Route path="/nodes">{loggedIn("see each node", <Nodes />)}</Route>
          <Route path="/nodes/:id">{({ id }) => loggedIn("see a node", <Node id={id} />)}</Route>
          <Route path="/market/:id?">{({ id }) => loggedIn("see the market", <Market id={id ?? null} />)}</Route>
          <Route path="/leases">{loggedIn("rent a machine", <Leases isOrdering={false} />)}</Route>
          <Route path="/leases/new">{loggedIn("rent a machine", <Leases isOrdering />)}</Route>
          <Route path="/leases/:id">{({ id }) => loggedIn("see a lease", <Lease key={id} id={id} />)}</Route>
          <Route path="/validators">{loggedIn("see the validators", <Validators />)}</Route>
          <Route path="/earnings">{loggedIn("see what your nodes earn", <Earnings />)}</Route>
          <Route path="/playground">{loggedIn("send a request to a model", <Playground />)}</Route>
          <Route path="/keys">{loggedIn("make API keys", <Keys />)}</Route>
          <Route path="/usage/:id?">{({ id }) => loggedIn("see what you used", <Usage id={id ?? null} />)}</Route>
          <Route path="/join">{loggedIn("lend a GPU", <Join />)}</Route>
          <Route path="/operate">{loggedIn("operate the network", <Operator />)}</Route>
          <Route path="/account">{loggedIn("see your account", <Account />)}</Route>
          <Route component={NotFound} />
        </Switch>
      </Suspense>
    </Shell>
  );
}

function loggedIn(purpose: string, page: ReactNode): ReactNode {
  return <RequireLogin purpose={purpose}>{page}</RequireLogin>;
}

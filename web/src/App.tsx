import { lazy, Suspense } from "react";
import { Route, Switch } from "wouter";
import { Known } from "./shell/Known";
import { Shell } from "./shell/Shell";
import { Network } from "./pages/Network";
import { NotHere } from "./pages/NotHere";

const Matching = lazy(() => import("./pages/Matching"));
const Models = lazy(() => import("./pages/Models"));
const Nodes = lazy(() => import("./pages/Nodes"));
const Node = lazy(() => import("./pages/Node"));
const Earnings = lazy(() => import("./pages/Earnings"));
const Playground = lazy(() => import("./pages/Playground"));
const Keys = lazy(() => import("./pages/Keys"));
const Usage = lazy(() => import("./pages/Usage"));
const Join = lazy(() => import("./pages/Join"));
const Status = lazy(() => import("./pages/Status"));
const Account = lazy(() => import("./pages/Account"));
const Door = lazy(() => import("./pages/Door"));

export function App() {
  return (
    <Shell>
      <Suspense fallback={<p className="p-6 text-muted">Loading …</p>}>
        <Switch>
          <Route path="/" component={Network} />
          <Route path="/matching/:id?">{({ id }) => <Matching id={id ?? null} />}</Route>
          <Route path="/models" component={Models} />
          <Route path="/nodes">
            <Known to="see each node">
              <Nodes />
            </Known>
          </Route>
          <Route path="/nodes/:id">
            {({ id }) => (
              <Known to="see a node">
                <Node id={id} />
              </Known>
            )}
          </Route>
          <Route path="/earnings">
            <Known to="see what your nodes earn">
              <Earnings />
            </Known>
          </Route>
          <Route path="/playground">
            <Known to="ask a model">
              <Playground />
            </Known>
          </Route>
          <Route path="/keys">
            <Known to="make API keys">
              <Keys />
            </Known>
          </Route>
          <Route path="/usage/:id?">
            {({ id }) => (
              <Known to="see what you used">
                <Usage id={id ?? null} />
              </Known>
            )}
          </Route>
          <Route path="/join">
            <Known to="lend a GPU">
              <Join />
            </Known>
          </Route>
          <Route path="/account">
            <Known to="see your account">
              <Account />
            </Known>
          </Route>
          <Route path="/status" component={Status} />
          <Route path="/login">
            <Door kind="login" />
          </Route>
          <Route path="/signup">
            <Door kind="signup" />
          </Route>
          <Route component={NotHere} />
        </Switch>
      </Suspense>
    </Shell>
  );
}

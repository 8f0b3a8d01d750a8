import { useNetwork } from "@/api/queries";
import { CopyLine } from "./CopyLine";

/** The next command where nothing was asked yet, with a model that is there. */
export function FirstQuestion() {
  const network = useNetwork();
  return <CopyLine label="a first question" text={`sparewatt chat ${network.data?.models[0]?.id ?? "MODEL"} 'Say hello'`} />;
}

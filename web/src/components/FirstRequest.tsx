import { useNetwork } from "@/api/queries";
import { CopyableText } from "./CopyableText";

/** A command that sends a first request, with a model that the network serves now. */
export function FirstRequest() {
  const network = useNetwork();
  return <CopyableText label="a first request" text={`sparewatt chat ${network.data?.models[0]?.id ?? "MODEL"} 'Say hello'`} />;
}

// Reads a reply that has one JSON value per line. An empty line is a keep-alive.

export async function* jsonLines<Value>(reply: Response): AsyncGenerator<Value> {
  if (!reply.body) return;
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (true) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line.trim()) yield JSON.parse(line) as Value;
  }
}

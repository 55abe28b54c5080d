// Questions to samplerd. The token comes behind the # of the URL, stays in this tab, and goes out in a header only.

const KEY = "sampler-token";

function token() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(KEY) ?? "";
}

const secret = token();

// Why there is no answer, in one line.
export class Refused extends Error {
  constructor(status, line) {
    super(line);
    this.status = status;
  }
}

async function fetched(path, values, signal) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") query.append(key, one);
    }
  }
  let answer;
  try {
    answer = await fetch(`${path}?${query}`, { headers: secret ? { Authorization: `Bearer ${secret}` } : {}, cache: "no-store", signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "samplerd does not answer");
  }
  if (!answer.ok) throw new Refused(answer.status, (await answer.text()).trim());
  return answer;
}

export async function ask(path, values = {}, signal = undefined) {
  return (await fetched(path, values, signal)).json();
}

// Fetches a file, and hands it to the browser's downloads.
export async function download(values, name) {
  const blob = await (await fetched("/api/download", values)).blob();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

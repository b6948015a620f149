// One question to the service. The token lives in sessionStorage: it survives a reload, not a closed browser.

export class Unauthorized extends Error {}
export class Unreachable extends Error {}

export async function ask(path, method = "GET", body = undefined) {
  const token = sessionStorage.getItem("token");
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Unreachable("The service does not answer.");
  }
  const found = await answer.json();
  if (answer.ok || path === "/readyz") return found;
  if (answer.status === 401) {
    throw new Unauthorized(token ? "This token is not valid, or no longer valid: give another one." : "Give a token to see anything.");
  }
  throw new Error(found.detail || found.title || `The service answered ${answer.status}.`);
}

export function query(values) {
  const given = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return new URLSearchParams(given).toString();
}

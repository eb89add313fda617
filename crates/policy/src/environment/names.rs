//! What a variable's name says about its value.

/// Tier 0 by name: values that are credentials, or lead to some, although no word of the name says so.
const CREDENTIAL_NAMES: [&str; 13] = [
    "DATABASE_URL",
    "DB_URL",
    "DOCKER_AUTH_CONFIG",
    "DOCKER_CONFIG",
    "DOCKER_HOST",
    "GPG_AGENT_INFO",
    "KUBECONFIG",
    "MONGODB_URI",
    "NETRC",
    "PGPASSFILE",
    "REDIS_URL",
    "SSH_AUTH_SOCK",
    "VAULT_ADDR",
];
/// Tier 0 by family.
const CREDENTIAL_PREFIXES: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_CLOUD_"];
/// Secret-like: the word anywhere in the name.
const SECRET_WORDS: [&str; 8] =
    ["SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "APIKEY", "API_KEY", "PRIVATE_KEY"];
/// Secret-like: the name's last word. `TOKENS` is a count more often than a secret.
const SECRET_LAST_WORDS: [&str; 9] =
    ["TOKEN", "KEY", "PASS", "PWD", "AUTH", "DSN", "COOKIE", "DATABASE_URL", "CONNECTION_STRING"];

/// `[A-Za-z_][A-Za-z0-9_]*`.
pub(super) fn is_well_formed(name: &str) -> bool {
    name.bytes().enumerate().all(|(index, byte)| {
        byte == b'_' || byte.is_ascii_alphabetic() || (index > 0 && byte.is_ascii_digit())
    }) && !name.is_empty()
}

/// Tier 0, whatever the case of the letters.
pub(super) fn is_credential(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let ends_in =
        |word: &str| name.strip_suffix(word).is_some_and(|rest| rest.is_empty() || rest.ends_with('_'));
    CREDENTIAL_NAMES.contains(&name.as_str())
        || CREDENTIAL_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || SECRET_WORDS.iter().any(|word| name.contains(word))
        || name.ends_with("TOKEN")
        || SECRET_LAST_WORDS.iter().any(|word| ends_in(word))
}

/// The proxy names, in both cases.
pub(super) fn is_proxy(name: &str) -> bool {
    matches!(name, "HTTP_PROXY" | "HTTPS_PROXY" | "NO_PROXY" | "http_proxy" | "https_proxy" | "no_proxy")
}

/// The names that an operator may pass on.
pub(super) fn is_tier1(name: &str) -> bool {
    let category = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
    is_proxy(name)
        || matches!(name, "LANG" | "LANGUAGE" | "TZ")
        || name.strip_prefix("LC_").is_some_and(category)
}

/// A user, with or without a password, before a host: `@` has no other place in a proxy's address or in a list of hosts.
pub(super) fn carries_credentials(proxy: &str) -> bool {
    proxy.contains('@')
}

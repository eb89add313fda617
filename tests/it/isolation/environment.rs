//! Environment variables by tiers. The service is started by a parent that holds every secret there is; whatever starts
//! processes, none of it is seen anywhere below.

use events::spec::Mechanism;
use serde_json::{Value, json};
use tests::process::{Options, Service, docker};

use super::{Case, Sandbox, options, sh};

on_every_mechanism! {
    nothing_of_a_polluted_parent_is_seen_by_anything_it_starts,
    the_operators_names_and_the_requests_are_added_and_no_others,
}

/// In every value below; nothing else says this.
const CANARY: &str = "canary-5f1a9c";

/// What a parent may hold: credentials, loaders, start-up files, proxies, tools' settings.
const POLLUTION: [&str; 44] = [
    "AWS_SECRET_ACCESS_KEY",
    "AWS_ACCESS_KEY_ID",
    "AWS_SESSION_TOKEN",
    "AZURE_CLIENT_SECRET",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GITHUB_TOKEN",
    "GH_TOKEN",
    "GITLAB_TOKEN",
    "NPM_TOKEN",
    "CARGO_REGISTRY_TOKEN",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "PGPASSWORD",
    "DATABASE_URL",
    "REDIS_URL",
    "KUBECONFIG",
    "DOCKER_HOST_CANARY",
    "DOCKER_AUTH_CONFIG",
    "SSH_AUTH_SOCK",
    "SSH_ASKPASS",
    "LD_AUDIT_CANARY",
    "LD_DEBUG_OUTPUT",
    "BASH_ENV",
    "ENV",
    "BASH_FUNC_ls%%",
    "PYTHONSTARTUP",
    "PYTHONPATH",
    "PERL5OPT",
    "RUBYOPT",
    "NODE_OPTIONS",
    "JAVA_TOOL_OPTIONS",
    "GIT_SSH_COMMAND",
    "GIT_CONFIG_GLOBAL",
    "GIT_ASKPASS",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "LANG",
    "LC_ALL",
    "TZ",
    "HOSTNAME",
    "MY_OWN_SECRET",
];

fn polluted(mechanism: Mechanism) -> Options {
    let mut options = options(mechanism);
    options.variables = POLLUTION
        .iter()
        .map(|name| {
            // What the parent itself needs to be readable stays readable.
            let value = match *name {
                "BASH_FUNC_ls%%" => format!("() {{ echo {CANARY}; }}"),
                "LANG" | "LC_ALL" => format!("C.UTF-8@{CANARY}"),
                "HTTP_PROXY" | "HTTPS_PROXY" | "ALL_PROXY" | "http_proxy" => {
                    format!("http://192.0.2.1:9/{CANARY}")
                }
                name => format!("{name}-{CANARY}"),
            };
            (*name, value)
        })
        // A loader that finds nothing says so and goes on.
        .chain([("LD_PRELOAD", format!("/nonexistent/{CANARY}.so"))])
        .collect();
    options
}

/// Names and values of a command, sorted.
fn variables(command: &Value) -> Vec<String> {
    let text = command["stdout"]["text"].as_str().unwrap_or_else(|| panic!("{command}"));
    let mut variables: Vec<String> =
        text.split('\0').filter(|one| !one.is_empty()).map(str::to_owned).collect();
    variables.sort();
    variables
}

const TIER_2: [&str; 5] =
    ["HOME=/workspace", "LANG=C.UTF-8", "PATH=/usr/local/bin:/usr/bin:/bin", "PWD=/workspace", "TMPDIR=/tmp"];

/// A command sees tier 2 and its request's, in the foreground and in the background; nothing else that runs says the canary.
async fn assert_clean(case: &Case, service: &Service, sandbox: &Sandbox, when: &str) {
    let body = json!({ "argv": ["env", "-0"], "env": { "ASKED": "for" } });
    let mut expected = vec!["ASKED=for".to_owned()];
    expected.extend(TIER_2.map(str::to_owned));
    let foreground = service.run(&sandbox.lease, &body).await;
    assert_eq!(variables(&foreground), expected, "{when}");
    let mut body = body;
    body["background"] = json!(true);
    body["wait_seconds"] = json!(30);
    let background = service.run(&sandbox.lease, &body).await;
    assert_eq!(variables(&background), expected, "{when}, in the background");

    // What code finds of others in its sandbox.
    let look = format!(
        "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c '[c]{}'",
        &CANARY[1..]
    );
    let found = service.run(&sandbox.lease, &sh(&look)).await;
    assert_eq!(found["stdout"]["text"], "0\n", "{when}: {found}");

    // What the host sees: every process of both containers, and the engine's clients that the service started.
    for role in ["sandbox", "files"] {
        let container = format!("leasehold-{}-{role}", case.environment(sandbox).await);
        let configured = docker(&["inspect", "--format", "{{json .Config}}", &container]).await;
        assert!(!configured.contains(CANARY), "{when}: {configured}");
        if role == "sandbox" && case.mechanism == Mechanism::Gvisor {
            // Its processes are not the host's; the look above saw them from within.
            continue;
        }
        let pids = docker(&["top", &container, "-eo", "pid"]).await;
        let pids: Vec<&str> = pids.lines().skip(1).map(str::trim).collect();
        assert!(pids.len() >= 2, "{when}: {container}: {pids:?}");
        for pid in pids {
            let names = environment_of(pid, when);
            assert!(
                names.iter().all(|name| ["PATH", "HOSTNAME", "HOME"].contains(&name.as_str())),
                "{when}: {container}: {names:?}"
            );
        }
    }
    let clients = children(service.pid()).into_iter().filter(|pid| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains("docker"))
    });
    let clients: Vec<String> = clients.map(|pid| pid.to_string()).collect();
    assert!(clients.len() >= 3, "events, and two channels for each environment: {clients:?}");
    for pid in clients {
        assert_eq!(environment_of(&pid, when), ["DOCKER_CONFIG"], "{when}: a client of the engine");
    }
}

/// The names in a process's environment; its values and its arguments hold no canary.
fn environment_of(pid: &str, when: &str) -> Vec<String> {
    let read = |file: &str| {
        String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default())
            .into_owned()
    };
    let environment = read("environ");
    assert!(
        !environment.contains(CANARY) && !read("cmdline").contains(CANARY),
        "{when}: process {pid}: {environment:?}"
    );
    environment.split('\0').filter_map(|one| Some(one.split_once('=')?.0.to_owned())).collect()
}

fn children(parent: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).expect("its threads");
    let lists = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

async fn nothing_of_a_polluted_parent_is_seen_by_anything_it_starts(mechanism: Mechanism) {
    let options = polluted(mechanism);
    let case = Case::start_with(&options, mechanism).await;
    // The parent is polluted indeed.
    let parent = std::fs::read(format!("/proc/{}/environ", case.service.pid())).expect("its environment");
    assert_eq!(String::from_utf8_lossy(&parent).matches(CANARY).count(), POLLUTION.len() + 1);
    let sandbox = case.sandbox().await;
    assert_clean(&case, &case.service, &sandbox, "at first").await;

    let killed = case.run(&sandbox, &json!({ "argv": ["sleep", "60"], "timeout_seconds": 0.3 })).await;
    assert_eq!(killed["killed_by"], "TIMEOUT", "{killed}");
    assert_clean(&case, &case.service, &sandbox, "after a kill").await;

    let case = case.restart(&options).await;
    assert_clean(&case, &case.service, &sandbox, "after a restart of the service").await;
    case.finish().await;
}

/// Tier 1 by the operator's list alone; the request's own; what is refused.
async fn the_operators_names_and_the_requests_are_added_and_no_others(mechanism: Mechanism) {
    let mut options = options(mechanism);
    options.variables = vec![
        ("LEASEHOLD_PASS_ENVIRONMENT", "HTTPS_PROXY,TZ,LC_TIME".to_owned()),
        ("HTTPS_PROXY", "http://192.0.2.1:3128".to_owned()),
        ("HTTP_PROXY", format!("http://192.0.2.2/{CANARY}")),
        ("TZ", "Europe/Zurich".to_owned()),
    ];
    let case = Case::start_with(&options, mechanism).await;
    let sandbox = case.sandbox().await;
    let seen =
        case.run(&sandbox, &json!({ "argv": ["env", "-0"], "env": { "LANG": "C", "X": "a=b\nc" } })).await;
    let expected = [
        "HOME=/workspace",
        "HTTPS_PROXY=http://192.0.2.1:3128",
        "LANG=C",
        TIER_2[2],
        "PWD=/workspace",
        "TMPDIR=/tmp",
        "TZ=Europe/Zurich",
        "X=a=b\nc",
    ];
    assert_eq!(variables(&seen), expected);
    for (name, value) in [
        ("AWS_PROFILE", "x"),
        ("MY_TOKEN", "x"),
        ("PATH", "/workspace"),
        ("HOME", "/"),
        ("PWD", "/"),
        ("LEASEHOLD_X", "x"),
    ] {
        let path = format!("/v1/leases/{}/commands", tests::api::id(&sandbox.lease, "lease_id"));
        let (status, refused) =
            case.service.post(&path, &json!({ "argv": ["env"], "env": { name: value } })).await;
        assert_eq!((status, &refused["code"]), (422, &json!("env_refused")), "{name}: {refused}");
    }
    case.finish().await;
}

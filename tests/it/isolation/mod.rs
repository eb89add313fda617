//! Isolation: real hostile programs in real sandboxes, through the real service over HTTP, on every mechanism.
//!
//! Each file is one section of attacks, each case one service with a few sandboxes. The programs lie in `probes/`; a probe says
//! what it got as one JSON object, and the case knows what it may get. A probe never sends anything beyond the machine:
//! before the first one runs, [`Case::sandbox`] proves that no route leaves its sandbox. After the last one, [`Case::finish`]
//! proves that the service is well, that another tenant's sandbox still answers with its files, that the log names every
//! sandbox, and that nothing is left.

/// One test per mechanism for each case, so that none is missing without a trace.
macro_rules! on_every_mechanism {
    ($($case:ident),+ $(,)?) => {
        mod docker {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    super::$case(events::spec::Mechanism::Docker).await;
                }
            )+
        }

        mod gvisor {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    super::$case(events::spec::Mechanism::Gvisor).await;
                }
            )+
        }
    };
}

mod cycles;
mod environment;
mod escape;
mod kernel;
mod paths;
mod processes;
mod profile;
mod resources;
#[cfg(target_arch = "x86_64")]
mod syscalls;
mod tenants;
mod trees;
mod trusted;
mod writable;

use std::sync::{Mutex, PoisonError};

use events::spec::Mechanism;
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::api::id;
use tests::process::{Options, Service, data_dir, docker};
use uuid::Uuid;

/// What every probe begins with.
const PRELUDE: &str = include_str!("probes/prelude.py");

/// One service, another tenant's sandbox beside those under attack, and what is asserted when all is over.
struct Case {
    mechanism: Mechanism,
    service: Service,
    neighbour: Sandbox,
    made: Mutex<Vec<Sandbox>>,
    data: TempDir,
}

/// One lease and its run.
#[derive(Clone)]
struct Sandbox {
    run: Uuid,
    lease: Value,
}

impl Sandbox {
    /// Where its files are.
    fn files(&self, path: &str) -> String {
        format!("/v1/leases/{}/files{path}", id(&self.lease, "lease_id"))
    }
}

/// How a service with this mechanism is started.
fn options(mechanism: Mechanism) -> Options {
    Options { mechanism: mechanism.as_str(), ..Options::default() }
}

impl Case {
    async fn start(mechanism: Mechanism) -> Self {
        Self::start_with(&options(mechanism), mechanism).await
    }

    async fn start_with(options: &Options, mechanism: Mechanism) -> Self {
        let data = data_dir();
        let service = Service::start(data.path(), options).await;
        let neighbour = acquire(&service, &json!({})).await;
        let kept = service.run(&neighbour.lease, &sh("echo mine > mine; id -u")).await;
        assert_eq!(kept["exit_code"], 0, "{kept}");
        Self { mechanism, service, neighbour, made: Mutex::default(), data }
    }

    /// SIGKILL, and another service on what is left: it takes the sandboxes over.
    async fn restart(self, options: &Options) -> Self {
        let Self { mechanism, service, neighbour, made, data } = self;
        service.kill_hard().await;
        let service = Service::start(data.path(), options).await;
        Self { mechanism, service, neighbour, made, data }
    }

    /// A fresh sandbox with the default limits, proven to have no way out.
    async fn sandbox(&self) -> Sandbox {
        self.sandbox_with(&json!({})).await
    }

    /// A fresh sandbox with some other limits, proven to have no way out.
    async fn sandbox_with(&self, limits: &Value) -> Sandbox {
        let sandbox = acquire(&self.service, limits).await;
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(sandbox.clone());
        let network = self.probe(&sandbox, include_str!("probes/network.py")).await;
        assert_eq!((&network["interfaces"], &network["routes"]), (&json!(["lo"]), &json!([])), "{network}");
        // Without a route there may be no address to send from either.
        assert_all(&network["reached"], &["ENETUNREACH", "EADDRNOTAVAIL"], "a way out: no probe may run");
        sandbox
    }

    /// Runs a command and waits for its end.
    async fn run(&self, sandbox: &Sandbox, body: &Value) -> Value {
        let mut command = self.service.run(&sandbox.lease, body).await;
        // Programs are long, and known.
        command["argv"] = Value::Null;
        command
    }

    /// Runs a shell script that must succeed; its standard output.
    async fn sh(&self, sandbox: &Sandbox, script: &str) -> String {
        let command = self.run(sandbox, &sh(script)).await;
        assert_eq!(command["exit_code"], 0, "{script}: {command}");
        command["stdout"]["text"].as_str().expect("text").to_owned()
    }

    /// Runs a hostile program to its own end; what it found.
    async fn probe(&self, sandbox: &Sandbox, program: &str) -> Value {
        self.probe_with(sandbox, program, &json!({})).await
    }

    /// The same with variables of the request.
    async fn probe_with(&self, sandbox: &Sandbox, program: &str, variables: &Value) -> Value {
        let mut body = python(program);
        body["env"] = variables.clone();
        body["timeout_seconds"] = json!(120.0);
        let command = self.run(sandbox, &body).await;
        assert_eq!((&command["exit_code"], &command["killed_by"]), (&json!(0), &Value::Null), "{command}");
        let text = command["stdout"]["text"].as_str().expect("text");
        serde_json::from_str(text).unwrap_or_else(|_| panic!("not what a probe says: {command}"))
    }

    /// Starts a command and does not wait.
    async fn begin(&self, sandbox: &Sandbox, body: &Value) -> Value {
        let mut body = body.clone();
        body["wait_seconds"] = json!(0);
        let path = format!("/v1/leases/{}/commands", id(&sandbox.lease, "lease_id"));
        let (status, command) = self.service.post(&path, &body).await;
        assert!(status == 202 || (status == 200 && command["state"] == "finished"), "{status} {command}");
        command
    }

    /// Waits for the end of a command that was begun.
    async fn ended(&self, command: &Value) -> Value {
        let path = format!("/v1/commands/{}", id(command, "command_id"));
        let mut command =
            self.service.wait_for(&path, "the end", |command| command["state"] == "finished").await;
        command["argv"] = Value::Null;
        command
    }

    /// The sandbox answers, with its workspace.
    async fn answers(&self, sandbox: &Sandbox) {
        assert_eq!(self.sh(sandbox, "echo on").await, "on\n");
    }

    /// Its environment's id, from the log.
    async fn environment(&self, sandbox: &Sandbox) -> String {
        let events = self.service.events(sandbox.run).await;
        let made = events.iter().find(|event| event["type"] == "EnvironmentProvisioned");
        let made = made.unwrap_or_else(|| panic!("the log does not name the sandbox: {events:?}"));
        id(&made["body"], "environment_id")
    }

    /// What the engine says about one container (`sandbox` or `files`) of an environment.
    async fn inspect(&self, sandbox: &Sandbox, role: &str) -> Value {
        let name = format!("leasehold-{}-{role}", self.environment(sandbox).await);
        let text = docker(&["inspect", "--size", "--type", "container", &name]).await;
        serde_json::from_str::<Value>(&text).expect("JSON")[0].clone()
    }

    /// Nothing of the attacks reached anybody else, and nothing is left of anything.
    async fn finish(self) {
        let ready = self.service.anonymous(Method::GET, "/readyz").send().await.expect("an answer");
        assert_eq!(ready.status(), 200, "the service is well");
        assert_eq!(self.sh(&self.neighbour, "ls; cat mine").await, "mine\nmine\n", "the neighbour is well");
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for sandbox in &made {
            self.environment(sandbox).await;
        }
        self.service.stop().await;
        drop(self.data);
    }
}

/// A lease on a fresh run.
async fn acquire(service: &Service, limits: &Value) -> Sandbox {
    let run = Uuid::now_v7();
    let body = json!({ "ttl_seconds": 900, "limits": limits });
    let (status, lease) = service.post(&format!("/v1/runs/{run}/leases"), &body).await;
    assert_eq!(status, 201, "{lease}");
    Sandbox { run, lease }
}

/// The body of a command that is a shell script.
fn sh(script: &str) -> Value {
    json!({ "argv": ["sh", "-c", script] })
}

/// The body of a command that is a probe.
fn python(program: &str) -> Value {
    json!({ "argv": ["python3", "-I", "-c", format!("{PRELUDE}\n{program}\nsay()")] })
}

/// Every outcome in `found` is one of `allowed`; all others are named at once.
fn assert_all(found: &Value, allowed: &[&str], what: &str) {
    let found = found.as_object().unwrap_or_else(|| panic!("{what}: not an object: {found}"));
    assert!(!found.is_empty(), "{what}: nothing was tried");
    let other: Vec<_> =
        found.iter().filter(|(_, got)| !got.as_str().is_some_and(|got| allowed.contains(&got))).collect();
    assert!(other.is_empty(), "{what}: only {allowed:?} is right, but: {other:?}");
}

/// Every word for "no".
const REFUSED: &[&str] = &["EPERM", "EACCES", "EROFS", "ENOENT", "ENOSYS", "ENXIO", "ENODEV"];

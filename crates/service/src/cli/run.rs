//! `leasehold run`: one command in a sandbox, its output as it comes, its exit code as ours.

use std::io::Read as _;
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::args::Run;
use super::client::{Client, send, text};
use super::exit::{self, Failure, tell};
use super::interrupt::Interrupts;
use super::sse::{Frame, Parser};

/// How often a broken output stream is taken up again before it is given up.
const RECONNECTS_MAX: usize = 5;

pub(super) async fn run(args: Run) -> Result<u8, Failure> {
    let client = Client::new(&args.server)?;
    let body = body(&args)?;
    let mut interrupts = Interrupts::listen().map_err(no_result)?;
    let lease = match args.lease {
        Some(lease_id) => Held { lease_id: lease_id.to_string(), run_id: None },
        None => tokio::select! {
            lease = acquire(&client, &args) => lease.map_err(no_result)?,
            failure = interrupts.received() => return Err(failure),
        },
    };
    let command_id = OnceLock::new();
    let ended = tokio::select! {
        ended = execute(&client, &lease.lease_id, &body, &command_id) => ended,
        failure = interrupts.received() => Err(failure),
    };
    tokio::select! {
        () = leave(&client, &lease, ended.is_err().then(|| command_id.get()).flatten()) => {}
        _ = interrupts.received() => tell("left at once: the lease and its command end when its time is over"),
    }
    ended.and_then(|command| verdict(&command)).map_err(|failure| match &lease.run_id {
        Some(run_id) if !failure.message.is_empty() => {
            let message = format!("{}\n  what happened: leasehold events --run {run_id}", failure.message);
            Failure { message, ..failure }
        }
        _ => failure,
    })
}

/// The lease that the command runs under.
struct Held {
    lease_id: String,
    /// The run of a lease that was acquired here, and is released here.
    run_id: Option<String>,
}

/// Ends what would go on without us. The command's own end counts; the lease ends by itself at the latest.
async fn leave(client: &Client, lease: &Held, abandoned_command_id: Option<&String>) {
    if let Some(command_id) = abandoned_command_id {
        // Nobody reads its output any more; one that has ended already does not mind.
        let kill = format!("/v1/commands/{command_id}/kill");
        if let Err(failure) = client.post(&kill, &json!({})).await {
            tell(&format!("the command was not killed: {}", failure.message));
        }
    }
    if lease.run_id.is_some() {
        let release = format!("/v1/leases/{}/release", lease.lease_id);
        if let Err(failure) = client.post(&release, &json!({})).await {
            tell(&format!("the lease was not released: {}", failure.message));
        }
    }
}

/// What is not the command's own doing has a code of its own.
fn no_result(failure: Failure) -> Failure {
    Failure { code: exit::NO_RESULT, ..failure }
}

fn body(args: &Run) -> Result<Value, Failure> {
    let mut env = serde_json::Map::new();
    for pair in &args.env {
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("--env takes NAME=VALUE, not {pair:?}")))?;
        env.insert(name.to_owned(), Value::from(value));
    }
    let mut body = json!({ "argv": args.argv, "env": env, "wait_seconds": 0 });
    if let Some(cwd) = &args.cwd {
        body["cwd"] = Value::from(cwd.as_str());
    }
    if let Some(timeout) = args.timeout {
        body["timeout_seconds"] = Value::from(timeout);
    }
    if args.stdin {
        let mut bytes = Vec::new();
        std::io::stdin()
            .read_to_end(&mut bytes)
            .map_err(|error| no_result(Failure::failed(format!("standard input: {error}"))))?;
        body["stdin_base64"] = Value::from(STANDARD.encode(bytes));
    }
    Ok(body)
}

async fn acquire(client: &Client, args: &Run) -> Result<Held, Failure> {
    let run_id = args.run.unwrap_or_else(Uuid::now_v7);
    let body = json!({ "ttl_seconds": args.ttl, "holder": "leasehold run" });
    let lease = client.post(&format!("/v1/runs/{run_id}/leases"), &body).await?;
    Ok(Held { lease_id: text(&lease, "lease_id")?, run_id: Some(run_id.to_string()) })
}

/// The command as it ended; its output has been written by then.
async fn execute(
    client: &Client,
    lease_id: &str,
    body: &Value,
    command_id: &OnceLock<String>,
) -> Result<Value, Failure> {
    let command = client.post(&format!("/v1/leases/{lease_id}/commands"), body).await.map_err(no_result)?;
    let accepted = text(&command, "command_id")?;
    let path = format!("/v1/commands/{}/output", command_id.get_or_init(|| accepted));
    let mut cursor = "0.0".to_owned();
    let mut broken = 0;
    loop {
        match follow(client, &path, &mut cursor).await {
            Ok(Some(command)) => return Ok(command),
            Ok(None) if broken < RECONNECTS_MAX => broken += 1,
            Ok(None) => {
                return Err(no_result(Failure::unavailable("the output stream breaks off every time")));
            }
            Err(failure) if failure.code == exit::UNREAD => return Err(failure),
            Err(failure) => return Err(no_result(failure)),
        }
    }
}

/// Writes output from the cursor on; the command when it ended, `None` when the connection broke.
async fn follow(client: &Client, path: &str, cursor: &mut String) -> Result<Option<Value>, Failure> {
    let request = client.request(Method::GET, path).header("Last-Event-ID", cursor.as_str());
    let mut bytes = send(request).await?.bytes_stream();
    let mut parser = Parser::default();
    while let Some(Ok(piece)) = bytes.next().await {
        for frame in parser.push(&piece) {
            if let Some(command) = write_frame(&frame)? {
                return Ok(Some(command));
            }
            if !frame.id.is_empty() {
                frame.id.clone_into(cursor);
            }
        }
    }
    Ok(None)
}

fn write_frame(frame: &Frame) -> Result<Option<Value>, Failure> {
    let data: Value = serde_json::from_str(&frame.data)
        .map_err(|_| Failure::failed("the output stream holds what this version cannot read"))?;
    match frame.event.as_str() {
        "stdout" => write_bytes(&mut std::io::stdout().lock(), &data)?,
        "stderr" => write_bytes(&mut std::io::stderr().lock(), &data)?,
        "gap" => {
            let missing = data["to"].as_u64().unwrap_or(0).saturating_sub(data["from"].as_u64().unwrap_or(0));
            tell(&format!(
                "{missing} bytes of {} are not held any more",
                data["stream"].as_str().unwrap_or("output")
            ));
        }
        "exit" => return Ok(Some(data)),
        _ => {}
    }
    Ok(None)
}

fn write_bytes(out: &mut impl std::io::Write, data: &Value) -> Result<(), Failure> {
    let bytes = match (data["text"].as_str(), data["base64"].as_str()) {
        (Some(text), _) => text.as_bytes().to_vec(),
        (None, Some(base64)) => STANDARD
            .decode(base64)
            .map_err(|_| Failure::failed("the output stream holds what this version cannot read"))?,
        (None, None) => Vec::new(),
    };
    out.write_all(&bytes).and_then(|()| out.flush()).map_err(|error| exit::unwritten(&error, exit::UNREAD))
}

/// The exit code that a command's end means.
fn verdict(command: &Value) -> Result<u8, Failure> {
    if let Some(reason) = command["killed_by"].as_str() {
        let code = if reason == "TIMEOUT" { exit::TIMED_OUT } else { exit::KILLED };
        return Err(Failure { code, message: format!("killed: {reason} {}", known(&command["evidence"])) });
    }
    if let Some(error) = command["evidence"]["start_error"].as_str() {
        tell(&format!("the program could not be started: {}", projections::timeline::Escaped(error)));
    }
    match command["exit_code"].as_i64().and_then(|code| u8::try_from(code).ok()) {
        Some(code) => Ok(code),
        None => {
            let cause = command["cause"].as_str().unwrap_or("unknown");
            Err(no_result(Failure::failed(format!("interrupted: {cause}"))))
        }
    }
}

/// The evidence without what does not apply.
fn known(evidence: &Value) -> Value {
    let known = evidence.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    Value::Object(known.map(|(key, value)| (key.clone(), value.clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_s_end_becomes_an_exit_code() {
        assert_eq!(verdict(&json!({ "exit_code": 7, "killed_by": null })), Ok(7));
        let code = |command: Value| verdict(&command).unwrap_err().code;
        assert_eq!(code(json!({ "killed_by": "TIMEOUT", "evidence": { "limit_ms": 5 } })), exit::TIMED_OUT);
        assert_eq!(code(json!({ "killed_by": "MEMORY", "evidence": {} })), exit::KILLED);
        assert_eq!(code(json!({ "exit_code": null, "cause": "sandbox_lost" })), exit::NO_RESULT);
    }
}

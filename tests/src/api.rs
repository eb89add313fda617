//! A client of the interface, as tests need one: with the token or without, and over a plain socket for what no ordinary client
//! sends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::process::PATIENCE;

/// A client with the token. Its reads see what its writes were told, as the interface promises to one that asks for it.
#[derive(Clone)]
pub struct Client {
    address: String,
    /// The development token.
    pub token: String,
    http: reqwest::Client,
    /// The highest position of any answer so far.
    seen: Arc<AtomicU64>,
}

impl Client {
    /// Of the service that listens at `address` (`host:port`).
    #[must_use]
    pub fn new(address: String, token: String) -> Self {
        Self { address, token, http: reqwest::Client::new(), seen: Arc::default() }
    }

    /// A request without a token.
    pub fn anonymous(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("http://{}{path}", self.address))
    }

    /// A request with the token.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.anonymous(method, path).bearer_auth(&self.token)
    }

    /// POST of a JSON body; answers status and JSON.
    ///
    /// # Panics
    /// When no answer comes.
    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send(self.request(Method::POST, path).json(body)).await
    }

    /// POST without a body; answers status and JSON.
    ///
    /// # Panics
    /// When no answer comes.
    pub async fn post_empty(&self, path: &str) -> (u16, Value) {
        self.send(self.request(Method::POST, path)).await
    }

    /// GET of what the views hold once they have seen every answer so far; answers status and JSON.
    ///
    /// # Panics
    /// When no answer comes.
    pub async fn get(&self, path: &str) -> (u16, Value) {
        self.send(self.request(Method::GET, path).header("Leasehold-Min-Position", self.seen())).await
    }

    /// Sends a request and remembers the position of its answer; answers status and JSON.
    ///
    /// # Panics
    /// When no answer comes.
    pub async fn send(&self, request: RequestBuilder) -> (u16, Value) {
        let response = request.send().await.expect("an answer");
        let written = response.headers().get("leasehold-position").map(|position| {
            position.to_str().ok().and_then(|text| text.parse::<u64>().ok()).expect("a position")
        });
        let (status, value) = answer(response).await;
        if let Some(position) = written.max(value["position"].as_u64()) {
            self.seen.fetch_max(position, Ordering::SeqCst);
        }
        (status, value)
    }

    /// The highest position of any answer so far; 0 before the first.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::SeqCst)
    }

    /// Every event of a run, in order, those behind every answer so far among them.
    ///
    /// # Panics
    /// When they cannot be read.
    pub async fn events(&self, run: Uuid) -> Vec<Value> {
        let mut events = Vec::new();
        let mut path = format!("/v1/runs/{run}/events?limit=1000");
        loop {
            let (status, page) = self.get(&path).await;
            assert_eq!(status, 200, "{page}");
            events.extend(page["items"].as_array().expect("items").iter().cloned());
            match page["next_cursor"].as_str() {
                Some(cursor) => path = format!("/v1/runs/{run}/events?limit=1000&cursor={cursor}"),
                None => return events,
            }
        }
    }

    /// A lease of five minutes on a fresh run: (run id, lease).
    pub async fn lease(&self) -> (Uuid, Value) {
        self.lease_for(300.0).await
    }

    /// A lease on a fresh run.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn lease_for(&self, ttl_seconds: f64) -> (Uuid, Value) {
        let run = Uuid::now_v7();
        let (status, lease) =
            self.post(&format!("/v1/runs/{run}/leases"), &json!({ "ttl_seconds": ttl_seconds })).await;
        assert_eq!(status, 201, "{lease}");
        (run, lease)
    }

    /// A command under a lease, waited for.
    ///
    /// # Panics
    /// When it is refused or does not finish.
    pub async fn run(&self, lease: &Value, body: &Value) -> Value {
        let (status, command) =
            self.post(&format!("/v1/leases/{}/commands", id(lease, "lease_id")), body).await;
        assert_eq!(status, 200, "{command}");
        command
    }

    /// Waits until `condition` holds of the JSON at `path`; answers that JSON.
    ///
    /// # Panics
    /// When it does not come to hold in time.
    pub async fn wait_for(&self, path: &str, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let (status, value) = self.get(path).await;
            if status == 200 && condition(&value) {
                return value;
            }
            assert!(start.elapsed() < PATIENCE, "waited in vain for {what}: {status} {value}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A request over a plain socket with the target exactly as given; answers status and JSON (null when empty).
    ///
    /// # Panics
    /// When no whole answer comes.
    pub async fn raw(&self, method: &str, target: &str, headers: &str) -> (u16, Value) {
        let mut socket = self.send_raw(method, target, headers, b"").await;
        let mut text = String::new();
        socket.read_to_string(&mut text).await.expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, serde_json::from_str(body).unwrap_or_default())
    }

    /// A request that ends early; returns when the service is done with the connection.
    ///
    /// # Panics
    /// When the connection breaks before.
    pub async fn raw_and_leave(&self, method: &str, target: &str, headers: &str, body: &[u8]) {
        let mut socket = self.send_raw(method, target, headers, body).await;
        socket.shutdown().await.expect("the sending half can be closed");
        let mut rest = Vec::new();
        socket.read_to_end(&mut rest).await.expect("the service closes the connection");
    }

    async fn send_raw(&self, method: &str, target: &str, headers: &str, body: &[u8]) -> TcpStream {
        let mut socket = TcpStream::connect(&self.address).await.expect("the service listens");
        let head = format!(
            "{method} {target} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nconnection: close\r\n{headers}\r\n",
            self.address, self.token
        );
        socket.write_all(head.as_bytes()).await.expect("the head is sent");
        socket.write_all(body).await.expect("the body is sent");
        socket
    }
}

/// Status and JSON of an answer; null when it has no body.
///
/// # Panics
/// When the body is not JSON.
pub async fn answer(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let text = response.text().await.expect("a body");
    if text.is_empty() {
        return (status, Value::Null);
    }
    (status, serde_json::from_str(&text).unwrap_or_else(|_| panic!("{status}, not JSON: {text}")))
}

/// A UUID field as text.
///
/// # Panics
/// When the field is missing.
#[must_use]
pub fn id(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_else(|| panic!("{field} in {value}")).to_owned()
}

/// The keys of an object, sorted.
///
/// # Panics
/// When it is none.
#[must_use]
pub fn keys(value: &Value) -> Vec<String> {
    let object = value.as_object().unwrap_or_else(|| panic!("not an object: {value}"));
    let mut keys: Vec<String> = object.keys().cloned().collect();
    keys.sort();
    keys
}

/// One server-sent event.
#[derive(Clone, Debug)]
pub struct SseEvent {
    /// Its name; `message` when it has none.
    pub name: String,
    /// Its id, empty when it has none.
    pub id: String,
    /// Its data.
    pub data: Value,
}

/// The whole events of a stream's text (HTML, server-sent events); comments and a cut last one are left out.
///
/// # Panics
/// When data is not JSON.
#[must_use]
pub fn sse(text: &str) -> Vec<SseEvent> {
    let mut events = Vec::new();
    let whole = text.rsplit_once("\n\n").map_or("", |(whole, _)| whole);
    for block in whole.split("\n\n") {
        let field = |name: &str| {
            let values = block.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            values.map(|value| value.strip_prefix(' ').unwrap_or(value)).collect::<Vec<_>>().join("\n")
        };
        let data = field("data");
        if data.is_empty() {
            continue;
        }
        let name = Some(field("event")).filter(|name| !name.is_empty());
        events.push(SseEvent {
            name: name.unwrap_or_else(|| "message".to_owned()),
            id: field("id"),
            data: serde_json::from_str(&data).unwrap_or_else(|_| panic!("not JSON: {data}")),
        });
    }
    events
}

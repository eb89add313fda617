//! What a refused request still has to say.
//!
//! A server that answers and closes while a client is sending resets the connection, and the client may never see the answer.
//! So the body of a refused request comes back here when its handler lets go of it, and what is left is read and dropped,
//! within bounds.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::header;
use futures::StreamExt as _;
use http_body::{Frame, SizeHint};
use tokio::sync::oneshot;

/// Of a refused body this much more is read; a client that sends more is cut off.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// For this long at most.
const TIME_MAX: Duration = Duration::from_secs(5);

/// The unread rest of a request's body, once its handler has let go of it.
pub(super) struct Rest(Option<oneshot::Receiver<Body>>);

/// Keeps hold of a request's body.
pub(super) fn watched(request: Request) -> (Request, Rest) {
    // A client that asks first (RFC 9110, 10.1.1) sends nothing until somebody reads.
    if request.headers().contains_key(header::EXPECT) || request.body().is_end_stream() {
        return (request, Rest(None));
    }
    let (back, rest) = oneshot::channel();
    let request = request.map(|body| Body::new(Watched { body, back: Some(back) }));
    (request, Rest(Some(rest)))
}

impl Rest {
    /// Reads and drops what is left.
    pub(super) async fn drop_it(self) {
        let Some(rest) = self.0 else { return };
        let read = async {
            let Ok(body) = rest.await else { return };
            let mut chunks = body.into_data_stream();
            let mut read_bytes = 0;
            while let Some(Ok(chunk)) = chunks.next().await {
                read_bytes += chunk.len();
                if read_bytes > BYTES_MAX {
                    return;
                }
            }
        };
        // Whatever comes of it, the answer is the same.
        let _ = tokio::time::timeout(TIME_MAX, read).await;
    }
}

/// A body that is given back when it is dropped before its end.
struct Watched {
    body: Body,
    back: Option<oneshot::Sender<Body>>,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            self.back = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(back) = self.back.take().filter(|_| !self.body.is_end_stream()) {
            // Nobody waits for the rest of a request that was carried out.
            drop(back.send(std::mem::take(&mut self.body)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn request(chunks: usize) -> (Request, Arc<AtomicUsize>) {
        let sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sent);
        let stream = futures::stream::iter(0..chunks).map(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok::<_, std::io::Error>(Bytes::from_static(&[0; 1024]))
        });
        (Request::new(Body::from_stream(stream)), sent)
    }

    #[tokio::test]
    async fn the_rest_is_read_to_its_end() {
        let (request, sent) = request(100);
        let (request, rest) = watched(request);
        let mut chunks = request.into_body().into_data_stream();
        assert!(chunks.next().await.is_some());
        drop(chunks);
        assert!(sent.load(Ordering::Relaxed) < 100);
        rest.drop_it().await;
        assert_eq!(sent.load(Ordering::Relaxed), 100);
    }

    #[tokio::test]
    async fn the_rest_has_bounds() {
        let (request, sent) = request(1_000_000);
        let (request, rest) = watched(request);
        drop(request);
        rest.drop_it().await;
        assert_eq!(sent.load(Ordering::Relaxed), BYTES_MAX / 1024 + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_body_that_stays() {
        let (request, _) = request(1);
        let (request, rest) = watched(request);
        rest.drop_it().await;
        drop(request);
    }

    #[tokio::test]
    async fn a_client_that_asks_first_is_not_told_to_send() {
        let (mut request, sent) = request(1);
        request.headers_mut().insert(header::EXPECT, "100-continue".parse().unwrap());
        let (request, rest) = watched(request);
        drop(request);
        rest.drop_it().await;
        assert_eq!(sent.load(Ordering::Relaxed), 0);
    }
}

//! Extension API servers that hang, lie, cut off and redirect.

use std::sync::Arc;

use bytes::Bytes;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::json;
use tokio::{io::AsyncWriteExt, net::TcpListener, sync::Notify};

use crate::{
    extension::{Extension, answer, condition, register},
    support::{ask, get, server, whole},
};

const LAMPS: &str = "/apis/home.example.com/v1/lamps";

#[tokio::test]
async fn redirects_are_refused() {
    let (chain, _store) = server().await;
    let extension = Extension::start().await;
    extension.answers(|_| async {
        let mut response = answer(307, "text/plain", "");
        response.headers_mut().insert("location", "https://evil.example/".parse().unwrap());
        response
    });
    extension.available(&chain).await;
    let (code, text) = get(&chain, LAMPS).await;
    let wanted = "the backend attempted to redirect this request, which is not permitted\n";
    assert_eq!((code, text), (502, wanted.into()));
}

#[tokio::test]
async fn server_that_hangs_costs_its_requests_their_time_only() {
    let (chain, _store) = server().await;
    let extension = Extension::start().await;
    extension.available(&chain).await;
    extension.answers(|_| std::future::pending());
    let (code, told) = get(&chain, &format!("{LAMPS}?timeout=200ms")).await;
    assert_eq!((code, &told["reason"]), (504, &json!("Timeout")), "{told}");
    assert_eq!(get(&chain, "/api/v1/namespaces").await.0, 200);
}

#[tokio::test]
async fn responses_that_are_cut_off_or_stall_are_aborted() {
    let (chain, _store) = server().await;
    let extension = Extension::start().await;
    let received = Arc::new(Notify::new());
    let is_received = received.clone();
    extension.answers(move |request| {
        let is_received = is_received.clone();
        async move {
            if request.uri().path() != LAMPS {
                return answer(404, "text/plain", "");
            }
            let first = futures_util::stream::iter([Ok(Frame::data(Bytes::from_static(b"{\"items\":[")))]);
            let stalls = request.uri().query().is_some_and(|query| query.contains("timeout"));
            let rest = futures_util::stream::once(async move {
                if stalls {
                    std::future::pending::<()>().await;
                }
                is_received.notified().await;
                Err(std::io::Error::other("cut off"))
            });
            let body = StreamBody::new(futures_util::StreamExt::chain(first, rest));
            http::Response::builder()
                .header("content-type", "application/json")
                .body(BodyExt::boxed(body))
                .unwrap()
        }
    });
    extension.available(&chain).await;
    for path in [LAMPS.to_owned(), format!("{LAMPS}?timeout=300ms")] {
        let response = ask(&chain, "GET", &path, &[], "").await;
        assert_eq!(response.status(), 200);
        received.notify_one();
        // A client does not take what it got for the whole.
        assert!(response.into_body().collect().await.is_err(), "{path}");
    }
}

#[tokio::test]
async fn server_that_goes_away_is_a_503_with_the_reason() {
    let (chain, _store) = server().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // Not TLS at all.
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        }
    });
    register(&chain, port, &json!(null)).await;
    let found = condition(&chain, |found| found["reason"] == "FailedDiscoveryCheck").await;
    let message = found["message"].as_str().unwrap();
    assert!(message.ends_with("http: server gave HTTP response to HTTPS client"), "{message}");
    let (code, headers, body) = whole(ask(&chain, "GET", LAMPS, &[], "").await).await;
    assert_eq!((code, &body[..]), (503, &b"service unavailable\n"[..]));
    assert_eq!(headers["content-type"], "text/plain; charset=utf-8");

    let (chain, _store) = server().await;
    let extension = Extension::start().await;
    extension.answers(|request| async move {
        // Ends the connection without an answer.
        panic!("{}", request.uri())
    });
    extension.available(&chain).await;
    let (code, text) = get(&chain, LAMPS).await;
    let text = text.as_str().unwrap();
    assert!(code == 503 && text.starts_with("error trying to reach service: "), "{code} {text}");
}

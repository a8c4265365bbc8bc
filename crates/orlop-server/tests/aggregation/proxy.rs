//! Requests that are sent on: identity, streams, upgrades.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, Request, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper_util::rt::TokioIo;
use orlop_server::{Tokens, User, serve::serve};
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, client::IntoClientRequest, handshake::derive_accept_key, protocol::Role},
};

use crate::{
    extension::{Answer, Extension, answer, json_answer},
    support::{ask, create, server, started_with, whole},
};

const LAMPS: &str = "/apis/home.example.com/v1/namespaces/default/lamps";

#[tokio::test]
async fn request_arrives_as_its_user_and_without_credentials() {
    let (chain, _store) = server().await;
    let extension = Extension::start().await;
    extension.answers(|request| async move {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let headers: Vec<(String, String)> = parts
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect();
        json_answer(
            &json!({"method": parts.method.as_str(), "uri": parts.uri.to_string(), "headers": headers,
            "body": String::from_utf8_lossy(&body)}),
        )
    });
    extension.available(&chain).await;
    let mut user = User::master("ann");
    user.uid = "7".to_owned();
    user.extra.insert("example.com/scope".to_owned(), vec!["read".to_owned()]);
    let request = Request::post(format!("{LAMPS}/x/y?b=2&a=1&dryRun=All"))
        .header("authorization", "Bearer secret")
        .header("cookie", "a=b")
        .header("x-remote-user", "mallory")
        .header("x-remote-extra-evil", "1")
        .header("content-type", "text/x-anything")
        .header("audit-id", "audit-1")
        .body(Full::new(Bytes::from_static(b"hello")))
        .unwrap();
    let (code, headers, body) = whole(chain.answer(request, Some(&user)).await).await;
    let told: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((code, &told["method"], &told["body"]), (200, &json!("POST"), &json!("hello")), "{told}");
    assert_eq!(headers["audit-id"], "audit-1");
    assert!(told["uri"].as_str().unwrap().ends_with(&format!("{LAMPS}/x/y?b=2&a=1&dryRun=All")), "{told}");
    let sent = |name: &str| -> Vec<String> {
        let all = told["headers"].as_array().unwrap().iter();
        all.filter(|header| header[0] == name).map(|header| header[1].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(sent("x-remote-user"), ["ann"]);
    assert_eq!(sent("x-remote-uid"), ["7"]);
    assert_eq!(sent("x-remote-group"), ["system:masters", "system:authenticated"]);
    assert_eq!(sent("x-remote-extra-example.com%2fscope"), ["read"]);
    assert_eq!(
        (sent("audit-id"), sent("content-type")),
        (vec!["audit-1".to_owned()], vec!["text/x-anything".to_owned()])
    );
    for absent in ["authorization", "cookie", "x-remote-extra-evil"] {
        assert!(sent(absent).is_empty(), "{absent}");
    }
}

#[tokio::test]
async fn unauthorized_requests_do_not_reach_the_extension_server() {
    let (chain, _store) = server().await;
    let extension = Extension::start().await;
    let calls = Arc::new(Mutex::new(0));
    let counted = calls.clone();
    extension.answers(move |_| {
        *counted.lock().unwrap() += 1;
        async { answer(200, "text/plain", "") }
    });
    extension.available(&chain).await;
    let before = *calls.lock().unwrap();
    let request = Request::get(LAMPS).body(Full::new(Bytes::new())).unwrap();
    let response = chain.answer(request, Some(&User { name: "bob".to_owned(), ..User::default() })).await;
    assert_eq!(response.status(), 403);
    assert_eq!(*calls.lock().unwrap(), before);
}

#[tokio::test]
async fn escaped_slash_hides_no_subresource_from_authorization() {
    let (chain, _store) = server().await;
    let extension = Extension::start().await;
    let paths = Arc::new(Mutex::new(Vec::new()));
    let told = paths.clone();
    extension.answers(move |request| {
        told.lock().unwrap().push(request.uri().path().to_owned());
        async { json_answer(&json!({})) }
    });
    extension.available(&chain).await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "lamps"},
        "rules": [{"verbs": ["update"], "apiGroups": ["home.example.com"], "resources": ["lamps"]}]});
    create(&chain, &format!("{rbac}/roles"), &role).await;
    let group = "rbac.authorization.k8s.io";
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "lamps"}, "roleRef": {"apiGroup": group, "kind": "Role", "name": "lamps"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "ann"}]});
    create(&chain, &format!("{rbac}/rolebindings"), &binding).await;
    paths.lock().unwrap().clear();
    let ann = User::authenticated("ann", []);
    for (path, code) in [("x", 200), ("x/status", 403), ("x%2Fstatus", 403), ("x%2fstatus", 403)] {
        let request = Request::put(format!("{LAMPS}/{path}")).body(Full::new(Bytes::from("{}"))).unwrap();
        assert_eq!(chain.answer(request, Some(&ann)).await.status(), code, "{path}");
    }
    let reached = paths.lock().unwrap().clone();
    assert!(reached.iter().any(|path| path.ends_with("/x")), "{reached:?}");
    assert!(!reached.iter().any(|path| path.to_lowercase().contains("status")), "{reached:?}");
}

#[tokio::test]
async fn responses_are_streamed() {
    let (chain, _store) = server().await;
    let extension = Extension::start().await;
    let (sender, receiver) = mpsc::channel::<Result<Frame<Bytes>, std::io::Error>>(1);
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    extension.answers(move |request| {
        let receiver = receiver.clone();
        async move {
            if request.uri().query() != Some("watch=1") {
                return answer(404, "text/plain", "");
            }
            let stream = tokio_stream_of(receiver.lock().unwrap().take().unwrap());
            http::Response::builder()
                .header("content-type", "application/json")
                .body(BodyExt::boxed(StreamBody::new(stream)))
                .unwrap()
        }
    });
    extension.available(&chain).await;
    let response = ask(&chain, "GET", &format!("{LAMPS}?watch=1"), &[("accept-encoding", "gzip")], "").await;
    assert_eq!(response.status(), 200);
    assert!(!response.headers().contains_key(header::CONTENT_ENCODING));
    let mut body = response.into_body();
    for event in ["one\n", "two\n"] {
        sender.send(Ok(Frame::data(Bytes::from(event)))).await.unwrap();
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(frame, event, "it arrives before the next one is sent");
    }
    drop(sender);
    assert!(body.frame().await.is_none());
}

fn tokio_stream_of<T: Send + 'static>(
    mut receiver: mpsc::Receiver<T>,
) -> impl futures_util::Stream<Item = T> + Send {
    futures_util::stream::poll_fn(move |cx| receiver.poll_recv(cx))
}

/// Answers a WebSocket handshake, and echoes messages.
fn echo(mut request: Request<hyper::body::Incoming>) -> Answer {
    let key = request.headers()[header::SEC_WEBSOCKET_KEY].to_str().unwrap().to_owned();
    let user = request.headers()["x-remote-user"].to_str().unwrap().to_owned();
    tokio::spawn(async move {
        let upgraded = hyper::upgrade::on(&mut request).await.unwrap();
        let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
        while let Some(Ok(Message::Text(text))) = socket.next().await {
            socket.send(Message::text(format!("{user}: {text}"))).await.unwrap();
        }
    });
    let mut response = answer(101, "", "");
    let headers: &mut HeaderMap = response.headers_mut();
    headers.clear();
    headers.insert(header::CONNECTION, "Upgrade".parse().unwrap());
    headers.insert(header::UPGRADE, "websocket".parse().unwrap());
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, derive_accept_key(key.as_bytes()).parse().unwrap());
    response
}

#[tokio::test]
async fn upgrades_are_joined() {
    let tokens = Tokens::new(vec![("secret".to_owned(), User::master("ann"))]);
    let (chain, _store) = started_with(tokens).await;
    let extension = Extension::start().await;
    extension.answers(|request| async move {
        match request.uri().path().ends_with("/console") {
            true if request.headers().contains_key(header::UPGRADE) => echo(request),
            // A server that does not switch.
            _ => {
                answer(if request.uri().path().ends_with("/refused") { 400 } else { 200 }, "text/plain", "no")
            }
        }
    });
    extension.available(&chain).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, chain.clone(), None, std::future::pending()));
    let connect = async |path: &str| {
        let mut request = format!("ws://{address}{LAMPS}/x/{path}").as_str().into_client_request().unwrap();
        request.headers_mut().insert(header::AUTHORIZATION, "Bearer secret".parse().unwrap());
        let stream = TcpStream::connect(address).await.unwrap();
        tokio_tungstenite::client_async(request, stream).await
    };
    let (mut socket, _) = connect("console").await.unwrap();
    for text in ["hello", "again"] {
        socket.send(Message::text(text)).await.unwrap();
        let Message::Text(told) = socket.next().await.unwrap().unwrap() else { panic!("not a text") };
        assert_eq!(told.as_str(), format!("ann: {text}"));
    }
    for (path, code) in [("refused", 400), ("other", 503)] {
        let error = connect(path).await.unwrap_err();
        let tokio_tungstenite::tungstenite::Error::Http(response) = error else { panic!("{error}") };
        assert_eq!(response.status(), code, "{path}");
    }
}

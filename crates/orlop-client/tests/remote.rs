//! A client of another server, found by a kubeconfig.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use k8s_openapi::api::core::v1::ConfigMap;
use orlop_client::{Api, Client, Config, Error, Kubeconfig};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
};

/// A server of HTTP/1.1 that gives its answers in turn.
#[derive(Clone, Default)]
struct Server {
    answers: Arc<Mutex<Vec<(&'static str, String)>>>,
    /// Heads of requests.
    heads: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
}

impl Server {
    async fn start(answers: Vec<(&'static str, String)>) -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = Self { answers: Arc::new(Mutex::new(answers)), ..Self::default() };
        let serving = server.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                serving.connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serving.clone().serve(BufReader::new(stream)));
            }
        });
        (server, url)
    }

    async fn serve(self, mut stream: BufReader<tokio::net::TcpStream>) {
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if stream.read_line(&mut head).await.unwrap_or(0) == 0 {
                    return;
                }
            }
            self.heads.lock().unwrap().push(head.to_lowercase());
            let (head, body) = self.answers.lock().unwrap().remove(0);
            let answer = format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }
}

fn object(name: &str) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}).to_string()
}

async fn client(folder: &tempfile::TempDir, url: &str, user: &str) -> Client {
    let path = folder.path().join("config");
    let config = format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u, namespace: team}}}}]\n\
         clusters: [{{name: k, cluster: {{server: '{url}/prefix/'}}}}]\nusers: [{{name: u, user: {user}}}]\n"
    );
    fs::write(&path, config).unwrap();
    Client::connect(Config::of(&Kubeconfig::read_from(&path).unwrap()).unwrap()).await.unwrap()
}

#[tokio::test]
async fn requests_share_a_connection_and_carry_the_credentials() {
    let (server, url) = Server::start(vec![("200 OK", object("a")), ("200 OK", object("b"))]).await;
    let folder = tempfile::tempdir().unwrap();
    let user = "{token: secret, as: ann, as-groups: [dev, ops], as-user-extra: {scope: [x]}}";
    let client = client(&folder, &url, user).await;
    assert_eq!(client.default_namespace(), "team");
    let api = Api::<ConfigMap>::namespaced(client, "team");
    assert_eq!(api.get("a").await.unwrap().metadata.name.as_deref(), Some("a"));
    assert_eq!(api.get("b").await.unwrap().metadata.name.as_deref(), Some("b"));
    assert_eq!(server.connections.load(Ordering::Relaxed), 1);
    let heads = server.heads.lock().unwrap();
    assert!(heads[0].starts_with("get /prefix/api/v1/namespaces/team/configmaps/a "), "{}", heads[0]);
    for header in ["authorization: bearer secret", "impersonate-user: ann", "impersonate-extra-scope: x"] {
        assert!(heads[1].contains(header), "{header} is not in {}", heads[1]);
    }
    assert_eq!(heads[1].matches("impersonate-group: ").count(), 2);
}

#[tokio::test]
async fn credential_plugin_and_token_file_give_tokens() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("token"), "of-a-file\n").unwrap();
    let plugin = r#"{exec: {command: sh, args: ['-c', 'echo "{status: {token: of-a-plugin}}"'], interactiveMode: Never}}"#;
    for (user, token) in [("{tokenFile: token}", "of-a-file"), (plugin, "of-a-plugin")] {
        let (server, url) = Server::start(vec![("200 OK", object("a"))]).await;
        Api::<ConfigMap>::all(client(&folder, &url, user).await).get("a").await.unwrap();
        let heads = server.heads.lock().unwrap();
        assert!(heads[0].contains(&format!("authorization: bearer {token}\r\n")), "{}", heads[0]);
    }
}

#[tokio::test]
async fn overloaded_server_is_asked_again_and_refusals_are_not() {
    let status = json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "none"}).to_string();
    let (server, url) = Server::start(vec![
        ("429 Too Many Requests\r\nretry-after: 0", String::new()),
        ("503 Service Unavailable", "later".to_owned()),
        ("404 Not Found", status),
        ("403 Forbidden", "a proxy says no".to_owned()),
    ])
    .await;
    let folder = tempfile::tempdir().unwrap();
    let api = Api::<ConfigMap>::all(client(&folder, &url, "{}").await);
    assert!(api.get_opt("a").await.unwrap().is_none());
    assert_eq!(server.heads.lock().unwrap().len(), 3);
    match api.get("a").await {
        Err(Error::Api(status)) => {
            assert_eq!((status.code, status.message.as_str()), (403, "a proxy says no"));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn plugins_that_no_client_has_any_more_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    let config = "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n\
         clusters: [{name: k, cluster: {server: 'http://a'}}]\nusers: [{name: u, user: {auth-provider: {name: gcp}}}]\n";
    fs::write(&path, config).unwrap();
    let error = Config::of(&Kubeconfig::read_from(&path).unwrap()).unwrap_err().to_string();
    assert!(error.contains("auth-provider"), "{error}");
}

//! Authorization: a decision over many bindings, and the API server with them beside one that allows everything.

use std::{
    hint::black_box,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use orlop_auth::{
    Decision, User,
    rbac::{Change, IndexWriter, Target, bootstrap},
    request::Attributes,
};
use serde_json::{Value, json};

use crate::{
    api::{CONFIG_MAPS, Server},
    client::Client,
    load,
    report::{Better, Report},
};

/// Namespaces that bindings are spread over.
const NAMESPACES: usize = 10;
/// Users of each load.
const CLIENTS: usize = 16;
const CONNECTIONS: usize = 4;
/// Bindings that are created at a time.
const AT_ONCE: usize = 64;
/// User whose requests are authorized.
const USER: &str = "bench";

pub(crate) async fn run(
    report: &mut Report,
    program: &Path,
    folder: &Path,
    time: Duration,
    bindings: usize,
) -> anyhow::Result<()> {
    decisions(report, time, bindings);
    let (one, other) = (folder.join("rbac"), folder.join("all"));
    let rbac = Server::start(program, &one)?;
    let all = Server::start_with(program, &other, &["--authorization-mode=AlwaysAllow"])?;
    let filling = Client::connect(&rbac.kubeconfig, CONNECTIONS).await?;
    let started = Instant::now();
    fill(&filling, bindings).await?;
    report.alone(format!("access: {bindings} bindings created"), "s", started.elapsed().as_secs_f64());
    report.alone("access: RSS with them", "MiB", rbac.resident_mib());
    report.alone("access: RSS without", "MiB", all.resident_mib());
    let (mut ours, mut peers) = (Vec::new(), Vec::new());
    for (server, clients) in [(&rbac, &mut ours), (&all, &mut peers)] {
        let client = Client::connect(&server.kubeconfig, CONNECTIONS).await?.impersonating(USER);
        let (code, _) = client.post(CONFIG_MAPS, &config_map("read")).await?;
        anyhow::ensure!(code == 201, "the first create was answered with {code}");
        clients.push(client);
    }
    let (Some(ours), Some(peer)) = (ours.pop(), peers.pop()) else { return Ok(()) };
    let path = format!("{CONFIG_MAPS}/read");
    let get = |client: Client| {
        let path = path.clone();
        move |_: usize, _: usize| {
            let (client, path) = (client.clone(), path.clone());
            async move { client.get(&path).await.is_ok_and(|(code, _)| code == 200) }
        }
    };
    let (with, without) = load::in_turns(CLIENTS, time, get(ours.clone()), get(peer.clone())).await;
    tell(report, "gets", with.per_second, without.per_second);
    let create = |client: Client| {
        move |worker: usize, n: usize| {
            let client = client.clone();
            async move {
                let created = client.post(CONFIG_MAPS, &config_map(&format!("w{worker}-{n}"))).await;
                created.is_ok_and(|(code, _)| code == 201)
            }
        }
    };
    let (with, without) = load::in_turns(CLIENTS, time, create(ours), create(peer)).await;
    tell(report, "creates", with.per_second, without.per_second);
    Ok(())
}

fn tell(report: &mut Report, name: &str, with: f64, without: f64) {
    let name = format!("access: {name} under RBAC");
    report.beside(name, "per second", Better::Higher, with, "AlwaysAllow", without);
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}})
}

/// Returns a binding of the role `edit` to a user.
fn binding(name: &str, namespace: &str, user: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:aggregate-to-edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    })
}

fn binding_view(name: &str, namespace: &str, user: &str) -> Value {
    let mut binding = binding(name, namespace, user);
    binding["roleRef"]["name"] = "system:aggregate-to-view".into();
    binding
}

/// Creates namespaces and bindings, and those of the user that is measured.
async fn fill(client: &Client, bindings: usize) -> anyhow::Result<()> {
    let create = |path: String, object: Value| {
        let client = client.clone();
        async move {
            let (code, body): (u16, Bytes) = client.post(&path, &object).await?;
            anyhow::ensure!(code == 201, "{code}: {}", String::from_utf8_lossy(&body));
            Ok(())
        }
    };
    for number in 0..NAMESPACES {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("team-{number}")}});
        create("/api/v1/namespaces".to_owned(), namespace).await?;
    }
    let path =
        |namespace: &str| format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
    let many = (0..bindings).map(|number| {
        let namespace = format!("team-{}", number % NAMESPACES);
        let binding = binding(&format!("b-{number}"), &namespace, &format!("user-{number}"));
        create(path(&namespace), binding)
    });
    stream::iter(many).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    create(path("default"), binding("bench-edit", "default", USER)).await?;
    create(path("default"), binding_view("bench-view", "default", USER)).await
}

/// Measures decisions alone, without a server.
fn decisions(report: &mut Report, time: Duration, bindings: usize) {
    let mut writer = IndexWriter::default();
    for role in bootstrap::roles() {
        apply(&mut writer, Target::Role, &role);
    }
    for binding in bootstrap::bindings() {
        apply(&mut writer, Target::Binding, &binding);
    }
    for number in 0..bindings {
        let namespace = format!("team-{}", number % NAMESPACES);
        let binding = binding(&format!("b-{number}"), &namespace, &format!("user-{number}"));
        apply(&mut writer, Target::Binding, &binding);
    }
    let started = Instant::now();
    let one_more = binding("b-more", "team-0", "user-more");
    let writes = 1000_u32;
    for _ in 0..writes {
        apply(&mut writer, Target::Binding, &one_more);
        black_box(writer.snapshot());
    }
    let write = started.elapsed() / writes;
    report.alone(
        format!("access: change of one binding among {bindings}"),
        "\u{b5}s",
        write.as_secs_f64() * 1e6,
    );
    let index = writer.snapshot();
    let groups = (0..5).map(|number| format!("group-{number}"));
    let user = Arc::new(User::authenticated(format!("user-{}", bindings / 2), groups));
    let namespace = format!("team-{}", (bindings / 2) % NAMESPACES);
    for (name, verb, namespace, expected) in
        [("allowed", "create", namespace.as_str(), true), ("not allowed", "create", "elsewhere", false)]
    {
        let attributes = Attributes {
            user: user.clone(),
            verb: verb.into(),
            is_resource_request: true,
            resource: "configmaps".into(),
            namespace: namespace.to_owned(),
            ..Attributes::default()
        };
        let (started, mut count) = (Instant::now(), 0_u32);
        let processor = load::processor_seconds(std::process::id());
        while started.elapsed() < time / 4 {
            for _ in 0..100 {
                let decision = index.authorize(black_box(&attributes));
                assert_eq!(matches!(decision, Decision::Allow(_)), expected, "{decision:?}");
            }
            count += 100;
        }
        // Processor time: the machine may be busy.
        let processor = load::processor_seconds(std::process::id()) - processor;
        let each = processor * 1e6 / f64::from(count);
        report.alone(format!("access: decision over {bindings} bindings, {name}"), "\u{b5}s", each);
    }
}

fn apply(writer: &mut IndexWriter, target: Target, object: &Value) {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    writer.apply(&Change { target, namespace, name, object: Some(object) });
}

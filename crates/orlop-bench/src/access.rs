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
    // The stages of the built-in policy, and all.
    let stages = [("complete", json!(["RequestReceived"])), ("both", json!([]))];
    let mut audited = Vec::new();
    for (name, omitted) in stages {
        let (policy, log) =
            (folder.join(format!("{name}-policy.json")), folder.join(format!("{name}-audit.log")));
        let metadata = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": omitted,
            "rules": [{"level": "Metadata"}],
        });
        std::fs::write(&policy, metadata.to_string())?;
        audited.push([
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", log.display()),
            "--audit-log-maxsize=100".to_owned(),
            "--audit-log-maxbackup=1".to_owned(),
        ]);
    }
    let all_folder = folder.join("all");
    let all = Server::start_with(program, &all_folder, &["--authorization-mode=AlwaysAllow"])?;
    let resident = all.resident_mib();
    // The same objects: only what enforces them differs.
    fill(&Client::connect(&all.kubeconfig, CONNECTIONS).await?, bindings).await?;
    let peer = user(program, &all_folder).await?;
    let allow_all = ["--authorization-mode=AlwaysAllow".to_owned()];
    let servers = [
        // The ratio of two equal servers tells how far the others can be believed.
        ("nothing", "equal", &allow_all[..]),
        ("RBAC", "rbac", &[][..]),
        ("RBAC and audit at Metadata", "complete", &audited[0]),
        ("RBAC and audit at Metadata, both stages", "both", &audited[1]),
    ];
    for (name, data_dir, options) in servers {
        let own = folder.join(data_dir);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let server = Server::start_with(program, &own, &options)?;
        let started = Instant::now();
        fill(&Client::connect(&server.kubeconfig, CONNECTIONS).await?, bindings).await?;
        if options.is_empty() {
            let seconds = started.elapsed().as_secs_f64();
            report.alone(format!("access: {bindings} bindings created"), "s", seconds);
            report.alone("access: RSS with them", "MiB", server.resident_mib());
            report.alone("access: RSS of AlwaysAllow with them", "MiB", all.resident_mib());
            report.alone("access: RSS of AlwaysAllow without", "MiB", resident);
        }
        loads(report, name, time, user(program, &own).await?, peer.clone()).await;
    }
    Ok(())
}

/// Returns a client with a certificate of the user that is measured.
async fn user(program: &Path, data_dir: &Path) -> anyhow::Result<Client> {
    let kubeconfig = data_dir.join("bench.kubeconfig");
    let added = tokio::process::Command::new(program)
        .args(["user", "add", USER, "--data-dir"])
        .arg(data_dir)
        .arg("--output")
        .arg(&kubeconfig)
        .output()
        .await?;
    anyhow::ensure!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    let client = Client::connect(&kubeconfig, CONNECTIONS).await?;
    let (code, _) = client.post(CONFIG_MAPS, &config_map("read")).await?;
    anyhow::ensure!(code == 201, "the first create was answered with {code}");
    Ok(client)
}

/// Measures gets and creates on two servers in turns.
async fn loads(report: &mut Report, name: &str, time: Duration, ours: Client, peer: Client) {
    let path = format!("{CONFIG_MAPS}/read");
    let get = |client: Client| {
        let path = path.clone();
        move |_: usize, _: usize| {
            let (client, path) = (client.clone(), path.clone());
            async move { client.get(&path).await.is_ok_and(|(code, _)| code == 200) }
        }
    };
    let mut tell = |what: &str, with: f64, without: f64| {
        let name = format!("access: {what} with {name}");
        report.beside(name, "per second", Better::Higher, with, "AlwaysAllow", without);
    };
    let (with, without) = load::in_turns(CLIENTS, time, get(ours.clone()), get(peer.clone())).await;
    tell("gets", with.per_second, without.per_second);
    // The peer's objects of an earlier turn are still there.
    let run = name.len();
    let create = |client: Client| {
        move |worker: usize, n: usize| {
            let client = client.clone();
            async move {
                let object = config_map(&format!("r{run}-w{worker}-{n}"));
                client.post(CONFIG_MAPS, &object).await.is_ok_and(|(code, _)| code == 201)
            }
        }
    };
    let (with, without) = load::in_turns(CLIENTS, time, create(ours), create(peer)).await;
    tell("creates", with.per_second, without.per_second);
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

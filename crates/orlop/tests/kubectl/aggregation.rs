//! A second `orlop serve` with a kind of its own, behind the first.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::support::daemon::Daemon;

/// The first server and the one behind it.
struct Pair {
    first: Daemon,
    second: Daemon,
    folder: tempfile::TempDir,
}

fn definition() -> Value {
    let spec =
        json!({"type": "object", "properties": {"lumen": {"type": "integer", "description": "How bright."}}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "lamps.home.example.com"},
        "spec": {"group": "home.example.com", "scope": "Namespaced",
            "names": {"plural": "lamps", "kind": "Lamp", "shortNames": ["lp"]},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}})
}

fn lamp(name: &str) -> String {
    json!({"apiVersion": "home.example.com/v1", "kind": "Lamp", "metadata": {"name": name}, "spec": {"lumen": 5}})
        .to_string()
}

fn port(server: &Daemon) -> u16 {
    let url =
        server.screen.split_whitespace().find(|word| word.starts_with("https://")).expect("its address");
    url.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
}

/// Waits until kubectl says what is wanted.
#[track_caller]
fn eventually(server: &Daemon, arguments: &[&str], wanted: impl Fn(&str) -> bool) -> String {
    let began = Instant::now();
    loop {
        let (_, said) = server.kubectl_with(&server.kubeconfig(), arguments);
        if wanted(&said) {
            return said;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "kubectl {arguments:?} still says: {said}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Pair {
    /// Starts both. `options` of the second one may need the first one and a folder.
    fn start(options: impl Fn(&Daemon, &Path) -> Vec<String>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let first = Daemon::start(&path("first"), &[]);
        let published = first.kubectl(&[
            "-n",
            "kube-system",
            "get",
            "configmap",
            "extension-apiserver-authentication",
            "-o",
            "jsonpath={.data.requestheader-client-ca-file}",
        ]);
        let ca: PathBuf = path("front-proxy-ca.crt");
        fs::write(&ca, published).expect("written");
        let more = options(&first, folder.path());
        let trust = ["--tls-san", "lamps.default.svc", "--requestheader-allowed-names", "front-proxy-client"];
        let mut all: Vec<&str> = trust.to_vec();
        let ca = ca.display().to_string();
        all.extend(["--requestheader-client-ca-file", &ca]);
        all.extend(more.iter().map(String::as_str));
        let second = Daemon::start(&path("second"), &all);
        let pair = Self { first, second, folder };
        pair.second.with_input(&["create", "-f", "-"], &definition().to_string());
        pair.register();
        pair
    }

    fn register(&self) {
        let ca = fs::read(self.folder.path().join("second/pki/ca.crt")).expect("its CA");
        let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "lamps", "namespace": "default"},
                "spec": {"type": "ExternalName", "externalName": "localhost"}},
            {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                "metadata": {"name": "v1.home.example.com"},
                "spec": {"group": "home.example.com", "version": "v1", "groupPriorityMinimum": 2000,
                    "versionPriority": 10, "caBundle": STANDARD.encode(ca),
                    "service": {"namespace": "default", "name": "lamps", "port": port(&self.second)}}},
        ]});
        self.first.with_input(&["create", "-f", "-"], &objects.to_string());
        let wait = ["wait", "--for=condition=Available", "--timeout=60s", "apiservice/v1.home.example.com"];
        self.first.kubectl(&wait);
        eventually(&self.first, &["get", "lamps"], |said| said.starts_with("No resources found"));
    }
}

#[test]
fn extension_server_is_part_of_the_api() {
    let Pair { first, second, folder } = Pair::start(|_, _| Vec::new());
    let listed = first.kubectl(&["api-resources", "--api-group", "home.example.com", "--no-headers"]);
    let columns: Vec<&str> = listed.split_whitespace().collect();
    assert_eq!(columns, ["lamps", "lp", "home.example.com/v1", "true", "Lamp"]);
    assert!(
        first.with_input(&["create", "-f", "-"], &lamp("one")).contains("lamp.home.example.com/one created")
    );
    assert_eq!(second.kubectl(&["get", "lamps", "-o", "name"]), "lamp.home.example.com/one");
    // Its schemas are merged a little later than it is available.
    eventually(&first, &["explain", "lamp.spec"], |said| said.contains("How bright."));
    let applied = lamp("one").replace("\"lumen\":5", "\"lumen\":6");
    first.with_input(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &applied);
    let lumen = ["get", "lp", "one", "-o", "jsonpath={.spec.lumen}"];
    assert_eq!(first.kubectl(&lumen), "6");
    let wrong = applied.replace("lumen\":6", "lumen\":\"much\"");
    let (success, said) = first.kubectl_with(&first.kubeconfig(), &["get", "lamp", "two"]);
    assert!(!success && said.contains("lamps.home.example.com \"two\" not found"), "{said}");
    let folder_file = folder.path().join("wrong.json");
    fs::write(&folder_file, wrong).expect("written");
    let path = folder_file.display().to_string();
    let (success, said) = first.kubectl_with(&first.kubeconfig(), &["apply", "-f", &path]);
    assert!(!success && said.contains("lumen"), "{said}");

    // Users are authorized by both servers.
    let as_ann = ["get", "lamp", "one", "-o", "name", "--as", "ann"];
    let role = ["create", "clusterrole", "lamps", "--verb", "get", "--resource", "lamps.home.example.com"];
    let binding = ["create", "clusterrolebinding", "lamps", "--clusterrole", "lamps", "--user", "ann"];
    let may = || first.kubectl_with(&first.kubeconfig(), &as_ann).0;
    assert!(!may());
    for server in [&first, &second] {
        assert!(!may());
        server.kubectl(&role);
        server.kubectl(&binding);
    }
    assert!(may());

    // A namespace waits for the server that may hold its objects.
    second.kubectl(&["create", "namespace", "dark"]);
    first.kubectl(&["create", "namespace", "dark"]);
    first.with_input(&["create", "-n", "dark", "-f", "-"], &lamp("left"));
    second.kill();
    let available =
        ["get", "apiservice", "v1.home.example.com", "-o", "jsonpath={.status.conditions[0].reason}"];
    eventually(&first, &available, |said| said == "FailedDiscoveryCheck");
    let (success, said) =
        first.kubectl_with(&first.kubeconfig(), &["get", "--raw", "/apis/home.example.com/v1"]);
    assert!(!success && said.contains("the server is currently unable to handle the request"), "{said}");
    first.kubectl(&["delete", "namespace", "dark", "--wait=false"]);
    let conditions = ["get", "namespace", "dark", "-o", "jsonpath={.status.conditions[*].message}"];
    let told = eventually(&first, &conditions, |said| said.contains("stale GroupVersion discovery"));
    assert!(told.contains("home.example.com/v1"), "{told}");
    first.kubectl(&["delete", "apiservice", "v1.home.example.com"]);
    eventually(&first, &["get", "namespace", "dark"], |said| said.contains("NotFound"));
}

#[test]
fn extension_server_asks_for_authorization() {
    let pair = Pair::start(|first, folder| {
        // The administrator's kubeconfig, with the address of reviews.
        let kubeconfig = fs::read_to_string(first.kubeconfig()).expect("a kubeconfig");
        let server = format!("https://127.0.0.1:{}", port(first));
        let reviews = format!("{server}/apis/authorization.k8s.io/v1/subjectaccessreviews");
        let file = folder.join("reviews.kubeconfig");
        fs::write(&file, kubeconfig.replace(&server, &reviews)).expect("written");
        let path = file.display().to_string();
        let options = ["--authorization-mode", "Webhook", "--authorization-webhook-version", "v1"];
        let options = options.into_iter().chain(["--authorization-webhook-config-file", &path]);
        options.map(str::to_owned).collect()
    });
    let first = &pair.first;
    let role = ["create", "clusterrole", "lamps", "--verb", "get", "--resource", "lamps.home.example.com"];
    first.kubectl(&role);
    first.kubectl(&["create", "clusterrolebinding", "lamps", "--clusterrole", "lamps", "--user", "ann"]);
    first.with_input(&["create", "-f", "-"], &lamp("one"));
    let said = first.kubectl(&["get", "lamp", "one", "-o", "name", "--as", "ann"]);
    assert_eq!(said, "lamp.home.example.com/one");
    let (success, _) = first.kubectl_with(&first.kubeconfig(), &["delete", "lamp", "one", "--as", "ann"]);
    assert!(!success);
}

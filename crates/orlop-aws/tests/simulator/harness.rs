//! A server with the controllers beside it.

use std::{
    collections::BTreeMap,
    pin::pin,
    time::{Duration, Instant},
};

use futures_util::TryStreamExt as _;
use http::Request;
use kube::core::WatchEvent;
use orlop_aws::{NAME, Observer, Settings, is_synced};
use orlop_controllers::runtime::Manager;
use orlop_test::Server;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// Deadline of every wait.
const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) struct Harness {
    pub(crate) server: Server,
    pub(crate) client: kube::Client,
    pub(crate) observer: Observer,
    pub(crate) settings: Settings,
    /// The controllers' own client, if they are not an administrator.
    pub(crate) own: Option<kube::Client>,
    controller: Option<JoinHandle<()>>,
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns settings for an account of ministack.
pub(crate) fn of_account(endpoint: &str, account: &str) -> Settings {
    let mut settings = settings(endpoint);
    if let Some(variables) = &mut settings.environment {
        variables.insert("AWS_ACCESS_KEY_ID".to_owned(), account.to_owned());
    }
    settings
}

/// Returns settings for a simulator: short waits, no limits of calls.
pub(crate) fn settings(endpoint: &str) -> Settings {
    let variables = [
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Settings {
        region: "us-east-1".to_owned(),
        endpoint: Some(endpoint.to_owned()),
        http_timeout: Duration::from_secs(10),
        rate_scale: 0.0,
        retry_base: Duration::from_millis(100),
        wait_scale: 0.02,
        environment: Some(BTreeMap::from(variables)),
        ..Settings::default()
    }
}

/// An object of a kind: its path without the name.
#[derive(Clone, Debug)]
pub(crate) struct At {
    pub(crate) path: String,
    pub(crate) name: String,
}

/// Returns the place of an object of ACK.
pub(crate) fn at(service: &str, plural: &str, namespace: &str, name: &str) -> At {
    let path = format!("/apis/{service}.services.k8s.aws/v1alpha1/namespaces/{namespace}/{plural}");
    At { path, name: name.to_owned() }
}

impl Harness {
    /// Starts a server, with the controllers in this process.
    pub(crate) async fn start(settings: Settings) -> Self {
        let mut harness = Self::without_controllers(settings).await;
        harness.launch();
        harness.installed().await;
        harness
    }

    /// Starts a server alone.
    pub(crate) async fn without_controllers(settings: Settings) -> Self {
        let server = Server::start().await.expect("a server");
        let client = server.client();
        Self { server, client, observer: Observer::default(), settings, own: None, controller: None }
    }

    /// Waits until the CRDs are served.
    pub(crate) async fn installed(&self) {
        // The last that the controllers install, whatever kinds they reconcile.
        let path = "/apis/services.k8s.aws/v1alpha1/iamroleselectors";
        self.until("the CRDs are served", async || self.call("GET", path, None).await.ok()).await;
    }

    /// Starts the controllers.
    pub(crate) fn launch(&mut self) {
        self.kill();
        let client = self.own.clone().unwrap_or_else(|| self.server.client());
        let mut manager = Manager::new(orlop_test::for_controllers(client));
        let observer = Observer::default();
        self.observer = observer.clone();
        let settings = self.settings.clone();
        manager.register(NAME, move |context| orlop_aws::run(context, settings.clone(), observer.clone()));
        self.controller = Some(tokio::spawn(manager.run(std::future::pending())));
    }

    /// Stops the controllers at whatever they are doing.
    pub(crate) fn kill(&mut self) {
        if let Some(controller) = self.controller.take() {
            controller.abort();
        }
    }

    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> kube::Result<Value> {
        let mut request = Request::builder().method(method).uri(path);
        let bytes = match body {
            Some((content_type, body)) => {
                request = request.header("Content-Type", content_type);
                body.to_string().into_bytes()
            }
            None => Vec::new(),
        };
        self.client.request(request.body(bytes).map_err(kube::Error::HttpError)?).await
    }

    /// Applies an object as a user. Kind and version come from its place.
    pub(crate) async fn apply(&self, at: &At, kind: &str, annotations: Value, spec: Value) -> Value {
        let version =
            at.path.trim_start_matches("/apis/").splitn(3, '/').take(2).collect::<Vec<_>>().join("/");
        let object = json!({"apiVersion": version, "kind": kind,
            "metadata": {"name": at.name, "annotations": annotations}, "spec": spec});
        let path = format!("{}/{}?fieldManager=user&force=true", at.path, at.name);
        self.call("PATCH", &path, Some(("application/apply-patch+yaml", &object)))
            .await
            .expect("an applied object")
    }

    pub(crate) async fn patch(&self, at: &At, patch: Value) -> Value {
        let path = format!("{}/{}", at.path, at.name);
        self.call("PATCH", &path, Some(("application/merge-patch+json", &patch)))
            .await
            .expect("a patched object")
    }

    pub(crate) async fn get(&self, at: &At) -> Option<Value> {
        match self.call("GET", &format!("{}/{}", at.path, at.name), None).await {
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            other => Some(other.expect("an object")),
        }
    }

    pub(crate) async fn delete(&self, at: &At) {
        self.call("DELETE", &format!("{}/{}", at.path, at.name), None).await.expect("deleted");
    }

    pub(crate) async fn namespace(&self, name: &str, annotations: Value) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "annotations": annotations}});
        let path = format!("/api/v1/namespaces/{name}?fieldManager=user&force=true");
        self.call("PATCH", &path, Some(("application/apply-patch+yaml", &namespace)))
            .await
            .expect("a namespace");
    }

    /// Waits for a condition.
    pub(crate) async fn until<T>(&self, what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = check().await {
                return found;
            }
            assert!(Instant::now() < deadline, "not in time: {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until an object of this generation is synced.
    pub(crate) async fn synced(&self, at: &At) -> Value {
        self.eventually(at, is_synced).await
    }

    /// Waits for a state of an object.
    pub(crate) async fn eventually(&self, at: &At, check: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let object = self.get(at).await;
            if let Some(object) = object.clone().filter(&check) {
                return object;
            }
            assert!(Instant::now() < deadline, "{}: not in time: {:#}", at.name, object.unwrap_or_default());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Collects the states of an object from now on, until it is gone: a poll may miss those that pass.
    pub(crate) async fn history(&self, at: &At) -> JoinHandle<Vec<Value>> {
        let list = self.call("GET", &at.path, None).await.expect("a list");
        let version = list["metadata"]["resourceVersion"].as_str().expect("a version");
        let path =
            format!("{}?watch=1&resourceVersion={version}&fieldSelector=metadata.name={}", at.path, at.name);
        let request = Request::builder().uri(path).body(Vec::new()).expect("a request");
        let events = self.client.request_events::<Value>(request).await.expect("a watch");
        tokio::spawn(async move {
            let mut events = pin!(events);
            let mut states = Vec::new();
            while let Ok(Some(event)) = events.try_next().await {
                match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => states.push(object),
                    WatchEvent::Deleted(_) => break,
                    WatchEvent::Bookmark(_) | WatchEvent::Error(_) => {}
                }
            }
            states
        })
    }

    pub(crate) async fn gone(&self, at: &At) {
        let deadline = Instant::now() + PATIENCE;
        while let Some(object) = self.get(at).await {
            assert!(Instant::now() < deadline, "{} is still there: {:#}", at.name, object);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Asserts that the least-privilege policy allows every call that was made.
    pub(crate) fn assert_allowed(&self) {
        let policy = orlop_aws::iam_policy(&self.settings, "*");
        let statements = policy["Statement"].as_array().expect("statements").iter();
        let lists = statements.filter_map(|statement| statement["Action"].as_array());
        let allowed: Vec<&str> = lists.flatten().filter_map(Value::as_str).collect();
        let calls = self.observer.calls();
        assert!(!calls.is_empty());
        for (service, operation, _) in calls.keys() {
            if let Some(action) = orlop_aws::iam_action(service, operation) {
                assert!(allowed.contains(&action.as_str()), "{action} is called and not allowed");
            }
        }
    }

    /// Returns reasons of the events about an object.
    pub(crate) async fn events(&self, name: &str) -> Vec<String> {
        let list = self.call("GET", "/api/v1/events", None).await.expect("events");
        let events = list["items"].as_array().into_iter().flatten();
        let own = events.filter(|event| event["involvedObject"]["name"] == name);
        own.filter_map(|event| event["reason"].as_str().map(str::to_owned)).collect()
    }
}

/// Returns a condition of an object.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)
}

/// True if a condition has a status.
pub(crate) fn has(object: &Value, kind: &str, status: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == status)
}

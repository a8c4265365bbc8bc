//! Paths, operations and parameters of each kind, independent of the OpenAPI version.

use orlop_api::group_version::{GroupVersion, GroupVersionKind};
use serde_json::{Map, Value, json};

use super::{
    parameters::{self, CONNECT, DELETE, LIST, LOG, PATCH, Parameter, WRITE},
    schemas::{Definition, META, kind_extension},
};
use crate::registry::{Kind, Subresource};

/// A path and its operations.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) path: String,
    pub(super) operations: Vec<Operation>,
}

/// An operation.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) id: String,
    pub(super) tag: String,
    pub(super) action: &'static str,
    pub(super) gvk: GroupVersionKind,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Body,
    /// Response codes and their content.
    pub(super) answers: Vec<(u16, Content)>,
}

impl Path {
    /// Encodes the path and its operations. Parameters that all of them share belong to the path.
    pub(super) fn item(
        &self,
        parameter: fn(&Parameter) -> Value,
        operation: fn(&Operation, &[Parameter]) -> Value,
    ) -> Value {
        let lists: Vec<_> = self.operations.iter().map(|operation| operation.parameters.clone()).collect();
        let (shared, own) = parameters::shared(&lists);
        let mut item = Map::new();
        for (made, own) in self.operations.iter().zip(own) {
            item.insert(made.method.to_owned(), operation(made, &own));
        }
        if !shared.is_empty() {
            item.insert("parameters".into(), shared.iter().map(parameter).collect());
        }
        Value::Object(item)
    }
}

impl Operation {
    /// Adds the responses, action and kind of the operation.
    pub(super) fn answer(&self, made: &mut Value, content: fn(&Content) -> (&'static str, Value)) {
        let mut responses = Map::new();
        for (code, answered) in &self.answers {
            let (name, content) = content(answered);
            responses.insert(code.to_string(), json!({"description": super::reason(*code), name: content}));
        }
        responses.insert("401".into(), json!({"description": super::reason(401)}));
        made["responses"] = responses.into();
        if !self.action.is_empty() {
            made["x-kubernetes-action"] = self.action.into();
            made["x-kubernetes-group-version-kind"] = kind_extension(&self.gvk);
        }
    }
}

/// Content of a request.
#[derive(Debug)]
pub(super) enum Body {
    Nothing,
    Object(String),
    DeleteOptions,
    Patch { strategic: bool },
}

/// Content of a response.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Object(String),
    /// A list or a watch.
    Stream(String),
    /// Any text.
    Text,
    Log,
}

/// Returns all paths of a kind.
pub(super) fn of(kind: &Kind) -> Vec<Path> {
    Paths { kind, gv: kind.gvk.group_version() }.all()
}

struct Paths<'a> {
    kind: &'a Kind,
    gv: GroupVersion,
}

impl Paths<'_> {
    fn all(&self) -> Vec<Path> {
        let base = super::base(&self.gv);
        let (kind, resource) = (self.kind, &self.kind.resource);
        let place = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
        let mut paths = vec![
            Path { path: format!("{base}{place}/{resource}"), operations: self.collection() },
            Path { path: format!("{base}{place}/{resource}/{{name}}"), operations: self.item() },
        ];
        if kind.namespaced && kind.allows("list") {
            let id = self.id("list", "", "ForAllNamespaces");
            let operations = vec![self.list(id, false)];
            paths.push(Path { path: format!("{base}/{resource}"), operations });
        }
        for subresource in &kind.subresources {
            let path = format!("{base}{place}/{resource}/{{name}}/{}", subresource.name);
            if subresource.name == "proxy" {
                let mut operations = self.subresource(subresource);
                for operation in &mut operations {
                    operation.id.push_str("WithPath");
                    operation.parameters.push(parameters::PATH);
                }
                paths.push(Path { path: format!("{path}/{{path}}"), operations });
            }
            paths.push(Path { path, operations: self.subresource(subresource) });
        }
        if kind.allows("watch") {
            let scope = if kind.namespaced { "Namespaced" } else { "" };
            let watched = [
                (
                    format!("{place}/{resource}"),
                    self.id("watch", scope, "List"),
                    "watchlist",
                    kind.namespaced,
                    false,
                ),
                (
                    format!("{place}/{resource}/{{name}}"),
                    self.id("watch", scope, ""),
                    "watch",
                    kind.namespaced,
                    true,
                ),
                (
                    format!("/{resource}"),
                    self.id("watch", "", "ListForAllNamespaces"),
                    "watchlist",
                    false,
                    false,
                ),
            ];
            let count = if kind.namespaced { 3 } else { 2 };
            for (path, id, action, namespaced, named) in watched.into_iter().take(count) {
                let operation = self.watch(id, action, namespaced, named);
                paths.push(Path { path: format!("{base}/watch{path}"), operations: vec![operation] });
            }
        }
        paths.retain(|path| !path.operations.is_empty());
        paths
    }

    /// Returns an operation id: `listAppsV1NamespacedDeployment`.
    fn id(&self, verb: &str, scope: &str, rest: &str) -> String {
        format!("{verb}{}{scope}{}{rest}", super::camel(&self.gv, true), self.kind.gvk.kind)
    }

    fn operation(
        &self,
        method: &'static str,
        id: String,
        action: &'static str,
        named: bool,
        own: &[Parameter],
    ) -> Operation {
        let mut parameters = own.to_vec();
        parameters.push(parameters::PRETTY);
        parameters.extend(named.then_some(parameters::NAME));
        parameters.extend(self.kind.namespaced.then_some(parameters::NAMESPACE));
        Operation {
            method,
            id,
            tag: super::tag(&self.gv),
            action,
            gvk: self.kind.gvk.clone(),
            parameters,
            body: Body::Nothing,
            answers: Vec::new(),
        }
    }

    fn list(&self, id: String, namespaced: bool) -> Operation {
        let mut operation = self.operation("get", id, "list", false, LIST);
        operation.parameters.retain(|parameter| namespaced || parameter.name != "namespace");
        operation.answers = vec![(200, Content::Stream(Definition::list_of(self.kind).name()))];
        operation
    }

    fn watch(&self, id: String, action: &'static str, namespaced: bool, named: bool) -> Operation {
        let mut operation = self.operation("get", id, action, named, LIST);
        operation.parameters.retain(|parameter| namespaced || parameter.name != "namespace");
        operation.answers = vec![(200, Content::Stream(format!("{META}.WatchEvent")))];
        operation
    }

    fn collection(&self) -> Vec<Operation> {
        let kind = self.kind;
        let scope = if kind.namespaced { "Namespaced" } else { "" };
        let object = Definition::of(kind).name();
        let mut operations = Vec::new();
        if kind.allows("list") {
            operations.push(self.list(self.id("list", scope, ""), kind.namespaced));
        }
        if kind.allows("create") {
            operations.push(self.create(self.id("create", scope, ""), false, &object));
        }
        if kind.allows("deletecollection") {
            let own: Vec<Parameter> =
                LIST.iter().chain(DELETE).filter(|p| p.not_of_deletecollection()).copied().collect();
            let id = self.id("delete", &format!("Collection{scope}"), "");
            let mut operation = self.operation("delete", id, "deletecollection", false, &own);
            operation.body = Body::DeleteOptions;
            operation.answers = vec![(200, Content::Object(format!("{META}.Status")))];
            operations.push(operation);
        }
        operations
    }

    fn create(&self, id: String, named: bool, object: &str) -> Operation {
        let content = Content::Object(object.to_owned());
        let mut operation = self.operation("post", id, "post", named, WRITE);
        operation.body = Body::Object(object.to_owned());
        operation.answers = [200, 201, 202].map(|code| (code, content.clone())).to_vec();
        operation
    }

    fn item(&self) -> Vec<Operation> {
        let object = Definition::of(self.kind).name();
        let verbs: Vec<&str> = self.kind.verbs.iter().map(String::as_str).collect();
        let mut operations = self.read_and_write(&verbs, &object, "");
        if self.kind.allows("delete") {
            let scope = if self.kind.namespaced { "Namespaced" } else { "" };
            let mut operation =
                self.operation("delete", self.id("delete", scope, ""), "delete", true, DELETE);
            let content = if self.tells_deleted() { object } else { format!("{META}.Status") };
            operation.body = Body::DeleteOptions;
            operation.answers = [200, 202].map(|code| (code, Content::Object(content.clone()))).to_vec();
            operations.push(operation);
        }
        operations
    }

    /// Returns true if a delete is answered with the deleted object.
    fn tells_deleted(&self) -> bool {
        // Kubernetes documents a Status for these two, and returns the object all the same.
        let documents_status = matches!(self.kind.resource.as_str(), "devicetaintrules" | "namespaces");
        self.kind.flags.returns_deleted_object && !documents_status
    }

    /// Returns get, update and patch of an object or a subresource.
    fn read_and_write(&self, verbs: &[&str], object: &str, part: &str) -> Vec<Operation> {
        let scope = if self.kind.namespaced { "Namespaced" } else { "" };
        let content = Content::Object(object.to_owned());
        let mut operations = Vec::new();
        if verbs.contains(&"get") {
            let mut operation = self.operation("get", self.id("read", scope, part), "get", true, &[]);
            operation.answers = vec![(200, content.clone())];
            operations.push(operation);
        }
        if verbs.contains(&"update") {
            let mut operation = self.operation("put", self.id("replace", scope, part), "put", true, WRITE);
            operation.body = Body::Object(object.to_owned());
            operation.answers = [200, 201].map(|code| (code, content.clone())).to_vec();
            operations.push(operation);
        }
        if verbs.contains(&"patch") {
            let mut operation = self.operation("patch", self.id("patch", scope, part), "patch", true, PATCH);
            operation.body = Body::Patch { strategic: !self.kind.flags.custom };
            operation.answers = [200, 201].map(|code| (code, content.clone())).to_vec();
            operations.push(operation);
        }
        operations
    }

    fn subresource(&self, subresource: &Subresource) -> Vec<Operation> {
        let part = super::capital(&subresource.name);
        let verbs: Vec<&str> = subresource.verbs.iter().map(String::as_str).collect();
        let scope = if self.kind.namespaced { "Namespaced" } else { "" };
        if let Some((_, own)) = CONNECT.iter().find(|(name, _)| *name == subresource.name) {
            return self.connect(subresource, own);
        }
        if subresource.name == "log" {
            let mut operation = self.operation("get", self.id("read", scope, &part), "get", true, LOG);
            operation.answers = vec![(200, Content::Log)];
            return vec![operation];
        }
        let object = self.object_of(subresource);
        let mut operations = self.read_and_write(&verbs, &object, &part);
        if verbs.contains(&"create") {
            operations.push(self.create(self.id("create", scope, &part), true, &object));
        }
        operations.iter_mut().for_each(|operation| operation.gvk = subresource.gvk.clone());
        operations
    }

    fn object_of(&self, subresource: &Subresource) -> String {
        let gvk = &subresource.gvk;
        if *gvk == self.kind.gvk {
            return Definition::of(self.kind).name();
        }
        let entry = orlop_api::schema::builtin::type_of(&gvk.group, &gvk.version, &gvk.kind);
        entry.map_or_else(|| format!("{META}.Status"), |entry| entry.name().to_owned())
    }

    fn connect(&self, subresource: &Subresource, own: &[Parameter]) -> Vec<Operation> {
        const METHODS: &[(&str, &str, &str)] = &[
            ("delete", "delete", "Delete"),
            ("get", "get", "Get"),
            ("patch", "patch", "Patch"),
            ("create", "post", "Post"),
            ("update", "put", "Put"),
        ];
        let has = |verb: &str| subresource.verbs.iter().any(|allowed| allowed == verb);
        let scope = if self.kind.namespaced { "Namespaced" } else { "" };
        let one = |(_, method, name): &(&str, &'static str, &str)| {
            let id = self.id("connect", &format!("{name}{scope}"), &super::capital(&subresource.name));
            let mut operation = self.operation(method, id, "connect", true, own);
            operation.parameters.retain(|parameter| parameter.name != "pretty");
            operation.gvk = subresource.gvk.clone();
            operation.answers = vec![(200, Content::Text)];
            operation
        };
        METHODS.iter().filter(|(verb, ..)| has(verb)).map(one).collect()
    }
}

/// Returns the path that lists the resources of a group version.
pub(super) fn root(gv: &GroupVersion) -> Path {
    let operation = Operation {
        method: "get",
        id: format!("get{}APIResources", super::camel(gv, true)),
        tag: super::tag(gv),
        action: "",
        gvk: GroupVersionKind::default(),
        parameters: Vec::new(),
        body: Body::Nothing,
        answers: vec![(200, Content::Object(format!("{META}.APIResourceList")))],
    };
    Path { path: format!("{}/", super::base(gv)), operations: vec![operation] }
}

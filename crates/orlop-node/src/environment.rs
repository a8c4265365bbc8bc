//! The environment of a container.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Secret, Service};
use orlop_client::{Api, Client};

use crate::{
    downward::{self, Place},
    expansion::expand,
    images::Image,
};

/// Search path of a container whose image has none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// An environment cannot be built: the container waits with `CreateContainerConfigError`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ConfigError(pub(crate) String);

/// Variables in the order in which they were set; a later one replaces an earlier one of its name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variables(Vec<(String, String)>);

impl Variables {
    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.retain(|(known, _)| known != name);
        self.0.push((name.to_owned(), value.into()));
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn into_vec(self) -> Vec<(String, String)> {
        self.0
    }
}

/// Builds the environment of a container: the image's, services, `envFrom`, then `env` in its order.
pub(crate) async fn build(
    client: &Client,
    pod: &Pod,
    container: &Container,
    image: &Image,
    services: &[Arc<Service>],
    place: &Place,
    hostname: &str,
) -> Result<Variables, ConfigError> {
    let mut variables = Variables::default();
    variables.set("PATH", DEFAULT_PATH);
    variables.set("HOSTNAME", hostname);
    // The pod's address: a program that listens there, and not on all addresses, has every port to itself.
    variables.set("POD_IP", place.pod_ip.as_str());
    if container.tty == Some(true) {
        variables.set("TERM", "xterm");
    }
    for (name, value) in &image.env {
        variables.set(name, value.as_str());
    }
    let links = pod.spec.as_ref().and_then(|spec| spec.enable_service_links).unwrap_or(true);
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    for service in services {
        let metadata = &service.metadata;
        let is_api_server = (metadata.namespace.as_deref(), metadata.name.as_deref())
            == (Some("default"), Some("kubernetes"));
        let is_linked = links && metadata.namespace.as_deref() == Some(namespace);
        if is_api_server || is_linked {
            for (name, value) in service_variables(service) {
                variables.set(&name, value);
            }
        }
    }
    let mut sources = Sources { client, namespace, config_maps: BTreeMap::new(), secrets: BTreeMap::new() };
    sources.env_from(container, &mut variables).await?;
    sources.env(pod, container, place, &mut variables).await?;
    Ok(variables)
}

/// ConfigMaps and Secrets that an environment refers to.
struct Sources<'a> {
    client: &'a Client,
    namespace: &'a str,
    config_maps: BTreeMap<String, Option<ConfigMap>>,
    secrets: BTreeMap<String, Option<Secret>>,
}

impl Sources<'_> {
    async fn env_from(
        &mut self,
        container: &Container,
        variables: &mut Variables,
    ) -> Result<(), ConfigError> {
        for source in container.env_from.iter().flatten() {
            let prefix = source.prefix.as_deref().unwrap_or_default();
            let mut values = BTreeMap::new();
            if let Some(reference) = &source.config_map_ref {
                let optional = reference.optional == Some(true);
                if let Some(map) = self.config_map(&reference.name, optional).await? {
                    values.extend(map.data.clone().unwrap_or_default());
                }
            }
            if let Some(reference) = &source.secret_ref {
                let optional = reference.optional == Some(true);
                if let Some(secret) = self.secret(&reference.name, optional).await? {
                    values.extend(
                        secret.data.iter().flatten().map(|(key, value)| (key.clone(), text(&value.0))),
                    );
                }
            }
            for (key, value) in values {
                variables.set(&format!("{prefix}{key}"), value);
            }
        }
        Ok(())
    }

    async fn env(
        &mut self,
        pod: &Pod,
        container: &Container,
        place: &Place,
        variables: &mut Variables,
    ) -> Result<(), ConfigError> {
        for variable in container.env.iter().flatten() {
            let Some(source) = &variable.value_from else {
                let value = variable.value.as_deref().unwrap_or_default();
                let value = expand(value, |name| variables.get(name));
                variables.set(&variable.name, value);
                continue;
            };
            let mut value = None;
            if let Some(reference) = &source.field_ref {
                let found = downward::field(pod, place, &reference.field_path);
                value = Some(found.ok_or_else(|| {
                    ConfigError(format!("unsupported fieldPath: {}", reference.field_path))
                })?);
            } else if let Some(reference) = &source.resource_field_ref {
                let found = downward::resource(pod, Some(container), reference, place);
                value = Some(found.ok_or_else(|| {
                    ConfigError(format!("unsupported container resource: {}", reference.resource))
                })?);
            } else if let Some(reference) = &source.config_map_key_ref {
                let optional = reference.optional == Some(true);
                let namespace = self.namespace;
                let map = self.config_map(&reference.name, optional).await?;
                let found = map.and_then(|map| map.data.as_ref()?.get(&reference.key).cloned());
                if found.is_none() && !optional {
                    return Err(ConfigError(format!(
                        "couldn't find key {} in ConfigMap {namespace}/{}",
                        reference.key, reference.name
                    )));
                }
                value = found;
            } else if let Some(reference) = &source.secret_key_ref {
                let optional = reference.optional == Some(true);
                let namespace = self.namespace;
                let secret = self.secret(&reference.name, optional).await?;
                let found =
                    secret.and_then(|secret| Some(text(&secret.data.as_ref()?.get(&reference.key)?.0)));
                if found.is_none() && !optional {
                    return Err(ConfigError(format!(
                        "couldn't find key {} in Secret {namespace}/{}",
                        reference.key, reference.name
                    )));
                }
                value = found;
            } else if source.file_key_ref.is_some() {
                return Err(ConfigError("fileKeyRef is not supported by this node".to_owned()));
            }
            if let Some(value) = value {
                variables.set(&variable.name, value);
            }
        }
        Ok(())
    }

    async fn config_map(&mut self, name: &str, optional: bool) -> Result<Option<&ConfigMap>, ConfigError> {
        if !self.config_maps.contains_key(name) {
            let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), self.namespace);
            self.config_maps.insert(name.to_owned(), api.get_opt(name).await.map_err(failed)?);
        }
        match self.config_maps.get(name).and_then(Option::as_ref) {
            None if !optional => Err(ConfigError(format!("configmap {name:?} not found"))),
            found => Ok(found),
        }
    }

    async fn secret(&mut self, name: &str, optional: bool) -> Result<Option<&Secret>, ConfigError> {
        if !self.secrets.contains_key(name) {
            let api: Api<Secret> = Api::namespaced(self.client.clone(), self.namespace);
            self.secrets.insert(name.to_owned(), api.get_opt(name).await.map_err(failed)?);
        }
        match self.secrets.get(name).and_then(Option::as_ref) {
            None if !optional => Err(ConfigError(format!("secret {name:?} not found"))),
            found => Ok(found),
        }
    }
}

fn failed(error: orlop_client::Error) -> ConfigError {
    ConfigError(error.to_string())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the variables of a service, as Docker links named them.
fn service_variables(service: &Service) -> Vec<(String, String)> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let host = match spec.cluster_ip.as_deref() {
        Some(host) if !matches!(host, "" | "None") => host,
        _ => return Vec::new(),
    };
    let name = service.metadata.name.as_deref().unwrap_or_default().to_uppercase().replace('-', "_");
    let mut variables = vec![(format!("{name}_SERVICE_HOST"), host.to_owned())];
    for (index, port) in spec.ports.iter().flatten().enumerate() {
        let number = port.port;
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let url = format!("{}://{host}:{number}", protocol.to_lowercase());
        if index == 0 {
            variables.push((format!("{name}_SERVICE_PORT"), number.to_string()));
            variables.push((format!("{name}_PORT"), url.clone()));
        }
        if let Some(port_name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            let port_name = port_name.to_uppercase().replace('-', "_");
            variables.push((format!("{name}_SERVICE_PORT_{port_name}"), number.to_string()));
        }
        let prefix = format!("{name}_PORT_{number}_{}", protocol.to_uppercase());
        variables.push((prefix.clone(), url));
        variables.push((format!("{prefix}_PROTO"), protocol.to_lowercase()));
        variables.push((format!("{prefix}_PORT"), number.to_string()));
        variables.push((format!("{prefix}_ADDR"), host.to_owned()));
    }
    variables
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn service_variables_have_docker_link_names() {
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "my-db"},
            "spec": {"clusterIP": "127.128.0.5", "ports": [{"name": "sql", "port": 5432}]},
        }))
        .unwrap();
        let names: Vec<String> =
            service_variables(&service).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            names,
            [
                "MY_DB_SERVICE_HOST=127.128.0.5",
                "MY_DB_SERVICE_PORT=5432",
                "MY_DB_PORT=tcp://127.128.0.5:5432",
                "MY_DB_SERVICE_PORT_SQL=5432",
                "MY_DB_PORT_5432_TCP=tcp://127.128.0.5:5432",
                "MY_DB_PORT_5432_TCP_PROTO=tcp",
                "MY_DB_PORT_5432_TCP_PORT=5432",
                "MY_DB_PORT_5432_TCP_ADDR=127.128.0.5",
            ]
        );
    }
}

//! Custom resources with kubectl: definitions shaped like widely used ones.

use crate::support::Server;

const CERTIFICATES: &str = include_str!("custom/certificates.yaml");
const APPLICATIONS: &str = include_str!("custom/applications.yaml");
const CLUSTERS: &str = include_str!("custom/clusters.yaml");
const FROM_INPUT: &[&str] = &["create", "-f", "-"];

fn create(server: &Server, object: &str) -> String {
    server.with_input(FROM_INPUT, object)
}

#[test]
fn definition_is_served_once_it_is_created() {
    let server = Server::start();
    create(&server, CERTIFICATES);
    let certificate = |name: &str, secret: &str| {
        format!(
            "apiVersion: pki.example.io/v1\nkind: Certificate\nmetadata: {{name: {name}}}\n\
             spec: {{secretName: {secret}, dnsNames: [a.example.io], issuerRef: {{name: ca}}}}\n"
        )
    };
    create(&server, &certificate("web", "web-tls"));
    server.kubectl(&[
        "wait",
        "--for=condition=Established",
        "crd/certificates.pki.example.io",
        "--timeout=0",
    ]);
    let table = server.kubectl(&["get", "certs"]);
    assert!(table.starts_with("NAME   READY   SECRET    AGE\nweb"), "{table}");
    let wide = server.kubectl(&["get", "pki", "-o", "wide"]);
    assert!(wide.contains("ISSUER"), "{wide}");
    let spec = server.kubectl(&["get", "cert", "web", "-o", "jsonpath={.spec.privateKey}{.spec.issuerRef}"]);
    assert_eq!(
        spec,
        r#"{"algorithm":"RSA","rotationPolicy":"Always"}{"group":"pki.example.io","kind":"Issuer","name":"ca"}"#
    );
    let explained = server.kubectl(&["explain", "certificate.spec.issuerRef.name"]);
    assert!(explained.contains("Whose signature it is."), "{explained}");
    let all = server.kubectl(&["explain", "cert", "--recursive"]);
    assert!(all.contains("passwordSecretRef"), "{all}");
    let resources = server.kubectl(&["api-resources", "--api-group=pki.example.io", "--no-headers"]);
    assert_eq!(
        resources.split_whitespace().collect::<Vec<_>>(),
        ["certificates", "cert,certs", "pki.example.io/v1", "true", "Certificate"]
    );
    assert_eq!(
        server.kubectl(&["get", "cert", "--field-selector", "spec.issuerRef.name=ca", "-o", "name"]),
        "certificate.pki.example.io/web"
    );

    // kubectl apply, with its own merge, and again without a change.
    let apply = ["apply", "-f", "-"];
    assert!(server.with_input(&apply, &certificate("api", "api-tls")).contains("created"));
    assert!(server.with_input(&apply, &certificate("api", "api-tls")).contains("unchanged"));
    let labelled = certificate("api", "api-tls").replace("{name: api}", "{name: api, labels: {tier: front}}");
    assert!(server.with_input(&apply, &labelled).contains("configured"));
    let diff = server.with_input(&["diff", "-f", "-"], &labelled);
    assert_eq!(diff, "");

    // Rules, defaults and the rest of the schema.
    let rename = server
        .refused(&["patch", "cert", "web", "--type=merge", "-p", r#"{"spec":{"secretName":"other"}}"#], "");
    assert!(rename.contains("secretName is immutable"), "{rename}");
    let key = r#"{"spec":{"privateKey":{"algorithm":"ECDSA","size":300}}}"#;
    let refused = server.refused(&["patch", "cert", "web", "--type=merge", "-p", key], "");
    assert!(
        refused.contains("spec.privateKey.size") && refused.contains("ECDSA keys have 256, 384 or 521 bits"),
        "{refused}"
    );
    let renewal = r#"{"spec":{"duration":"1h","renewBefore":"2h"}}"#;
    let refused = server.refused(&["patch", "cert", "web", "--type=merge", "-p", renewal], "");
    assert!(refused.contains("renewal 2h before the end is longer than 1h"), "{refused}");
    let nothing = certificate("none", "none-tls").replace("dnsNames: [a.example.io], ", "");
    let refused = server.refused(FROM_INPUT, &nothing);
    assert!(refused.contains("at least one subject must be named"), "{refused}");
    let typo = certificate("typo", "typo-tls").replace("dnsNames", "dnsName");
    let refused = server.refused(FROM_INPUT, &typo);
    assert!(refused.contains("unknown field \"spec.dnsName\""), "{refused}");

    let ready = r#"{"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2030-01-01T00:00:00Z"}]}}"#;
    server.kubectl(&["patch", "cert", "web", "--subresource=status", "--type=merge", "-p", ready]);
    server.kubectl(&["wait", "--for=condition=Ready", "cert/web", "--timeout=5s"]);
    assert!(server.kubectl(&["get", "cert", "web"]).contains("True"));
    server.kubectl(&["delete", "cert", "--all"]);
    server.kubectl(&["delete", "crd", "certificates.pki.example.io"]);
    let gone = server.refused(&["get", "certificates.pki.example.io"], "");
    assert!(
        gone.contains("the server doesn't have a resource type")
            || gone.contains("could not find the requested resource"),
        "{gone}"
    );
}

#[test]
fn preserved_fields_stay_and_one_of_is_validated() {
    let server = Server::start();
    create(&server, APPLICATIONS);
    let application = "apiVersion: deploy.example.io/v1alpha1
kind: Application
metadata: {name: shop}
spec:
  project: default
  destination: {namespace: shop}
  source:
    repoURL: https://example.io/shop.git
    helm: {valuesObject: {any: {thing: [1, two, {three: 3.5}]}}}
    kustomize: {replicas: [{name: web, count: 3}, {name: db, count: 50%}]}
";
    create(&server, application);
    let free = server.kubectl(&["get", "app", "shop", "-o", "jsonpath={.spec.source.helm.valuesObject}{.spec.source.kustomize.replicas[*].count} {.spec.source.targetRevision}"]);
    assert_eq!(free, r#"{"any":{"thing":[1,"two",{"three":3.5}]}}3 50% HEAD"#);
    let both = application
        .replace("{name: shop}", "{name: both}")
        .replace("  source:\n", "  sources: []\n  source:\n");
    let refused = server.refused(FROM_INPUT, &both);
    assert!(refused.contains("\"spec\" must validate one and only one schema (oneOf)"), "{refused}");
    let wrong = application
        .replace("{name: shop}", "{name: wrong}")
        .replace("https:", "ftp:")
        .replace("count: 3", "count: {}");
    let refused = server.refused(FROM_INPUT, &wrong);
    assert!(refused.contains("should match '^(https|ssh|oci)://'"), "{refused}");
    let applied = ["apply", "--server-side", "--field-manager=ci", "-f", "-"];
    let change = application.replace("project: default", "project: other");
    let conflict = server.refused(&applied, &change);
    assert!(
        conflict.contains("conflict with \"kubectl-create\" using deploy.example.io/v1alpha1"),
        "{conflict}"
    );
    server.with_input(
        &["apply", "--server-side", "--force-conflicts", "--field-manager=ci", "-f", "-"],
        &change,
    );
    assert_eq!(server.kubectl(&["get", "app", "shop", "-o", "jsonpath={.spec.project}"]), "other");
    server.kubectl(&[
        "patch",
        "app",
        "shop",
        "--type=json",
        "-p",
        r#"[{"op":"remove","path":"/spec/source/helm"}]"#,
    ]);
    let strategic = server.refused(&["patch", "app", "shop", "-p", "{}"], "");
    assert!(strategic.contains("application/strategic-merge-patch+json is not supported"), "{strategic}");
}

#[test]
fn two_versions_serve_the_same_objects() {
    let server = Server::start();
    create(&server, CLUSTERS);
    let cluster = "apiVersion: fleet.example.io/v1beta2
kind: Cluster
metadata: {name: east}
spec:
  clusterNetwork: {pods: {cidrBlocks: [10.0.0.0/16]}}
  infrastructureTemplate: {apiVersion: v1, kind: Thing, metadata: {name: t}, spec: {x: 1}}
  topology: {class: small, version: v1.2.3, variables: [{name: region, value: {zone: a}}]}
";
    create(&server, cluster);
    let (_, old) = server.run(
        &[
            "get",
            "clusters.v1beta1.fleet.example.io",
            "east",
            "-o",
            "jsonpath={.apiVersion} {.spec.clusterNetwork.apiServerPort}",
        ],
        "",
    );
    assert!(old.starts_with("fleet.example.io/v1beta1 6443"), "{old}");
    assert!(old.contains("Warning: fleet.example.io/v1beta1 Cluster is deprecated"), "{old}");
    server.kubectl(&["scale", "cluster", "east", "--replicas=4"]);
    assert_eq!(server.kubectl(&["get", "cl", "east", "-o", "jsonpath={.spec.topology.workers}"]), "4");
    let table = server.kubectl(&["get", "fleet"]);
    assert!(table.contains("WORKERS") && table.contains('4'), "{table}");
    let moved = server.refused(
        &["patch", "cl", "east", "--type=merge", "-p", r#"{"spec":{"topology":{"class":"large"}}}"#],
        "",
    );
    assert!(moved.contains("spec.topology.class: Forbidden: a cluster keeps its class"), "{moved}");
    let range = server.refused(
        &[
            "patch",
            "cl",
            "east",
            "--type=merge",
            "-p",
            r#"{"spec":{"clusterNetwork":{"pods":{"cidrBlocks":["ten"]}}}}"#,
        ],
        "",
    );
    assert!(range.contains("must be a range of addresses"), "{range}");
    let template = server.refused(
        &[
            "patch",
            "cl",
            "east",
            "--type=merge",
            "-p",
            r#"{"spec":{"infrastructureTemplate":{"kind":null}}}"#,
        ],
        "",
    );
    assert!(template.contains("spec.infrastructureTemplate.kind: Required value"), "{template}");
}

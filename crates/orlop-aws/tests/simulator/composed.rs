//! User APIs on top: errors of AWS as the users of an instance see them.

use orlop_compose::Metrics;
use orlop_controllers::runtime::Manager;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{
    harness::{At, Harness, condition},
    proxy::Fault,
    stage::Stage,
};

const DEFINITION: &str = include_str!("../../../../examples/tubi/lambda-service.yaml");
/// An archive without files.
const ZIP: &str = "PK\u{5}\u{6}\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
/// As API Gateway words it: longer than what a status shows of a value.
const DENIED: &str = "User: arn:aws:sts::100000000019:assumed-role/orlop-aws/session is not authorized to perform: \
    apigateway:POST on resource: arn:aws:apigateway:us-east-1::/domainnames with an explicit deny in a service control policy";

/// The controller of ResourceGraphDefinitions, until it is dropped.
struct Composer(JoinHandle<()>);

impl Composer {
    fn start(harness: &Harness) -> Self {
        let mut manager = Manager::new(orlop_test::for_controllers(harness.server.client()));
        manager.register(orlop_compose::NAME, |context| {
            orlop_compose::run(context, orlop_compose::Settings::default(), Metrics::default())
        });
        Self(tokio::spawn(manager.run(std::future::pending())))
    }
}

impl Drop for Composer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Serves TubiLambdaServices, with an archive of code for them.
async fn serve(stage: &Stage) -> Composer {
    let harness = &stage.harness;
    let composer = Composer::start(harness);
    let definitions = "/apis/kro.run/v1alpha1/resourcegraphdefinitions";
    harness
        .until("the CRD of definitions is served", async || harness.call("GET", definitions, None).await.ok())
        .await;
    let definition: Value = serde_saphyr::from_str(DEFINITION).expect("a definition");
    let place = At { path: definitions.to_owned(), name: "tubi-lambda-service".to_owned() };
    harness.apply(&place, "ResourceGraphDefinition", json!({}), definition["spec"].clone()).await;
    harness.eventually(&place, |object| object["status"]["state"] == "Active").await;
    stage.aws.send("s3", "PUT", "/tubi-code", &[], "").await;
    stage.aws.send("s3", "PUT", "/tubi-code/code.zip", &[], ZIP).await;
    composer
}

fn service(name: &str) -> At {
    let path = "/apis/kro.run/v1alpha1/namespaces/default/tubilambdaservices";
    At { path: path.to_owned(), name: name.to_owned() }
}

/// TubiLambdaService, APIGatewayDomain, DomainName, API Gateway: the answer of the fourth is read at the first.
#[tokio::test(flavor = "multi_thread")]
async fn error_of_aws_four_layers_down_is_readable_in_the_conditions_of_an_instance() {
    let stage = Stage::start("100000000019").await;
    let harness = &stage.harness;
    let _composer = serve(&stage).await;
    stage.proxy.inject("POST /v2/domainnames ", Fault::Say(403, "AccessDeniedException", DENIED), usize::MAX);
    let service = service("layers");
    let spec = json!({"name": "layers", "code": {"s3Bucket": "tubi-code", "s3Key": "code.zip"}, "runtime": "python3.12",
        "handler": "main.handler", "architecture": "x86_64",
        "customDomain": {"enabled": true, "name": "layers.example.com", "certificateStrategy": "create"}});
    harness.apply(&service, "TubiLambdaService", json!({}), spec).await;
    let failing = harness
        .eventually(&service, |object| {
            condition(object, "ResourcesReady")
                .is_some_and(|ready| ready["message"].to_string().contains(DENIED))
        })
        .await;
    assert_eq!(failing["status"]["state"], "IN_PROGRESS");
    let ready = condition(&failing, "ResourcesReady").expect("a condition");
    assert_eq!(ready["status"], "False");
    let message = ready["message"].as_str().expect("a message");
    assert!(
        message.contains("APIGatewayDomain layers") && message.contains("AccessDeniedException"),
        "{message}"
    );
    let objects = failing["status"]["managedResources"].as_array().expect("objects");
    let domain = objects.iter().find(|object| object["id"] == "domain").expect("the domain");
    assert!(domain["message"].to_string().contains(DENIED), "{domain:#}");

    stage.proxy.clear();
    let active = harness.eventually(&service, |object| object["status"]["state"] == "ACTIVE").await;
    assert_eq!(active["status"]["dnsRecordName"], "layers.example.com.");
    harness.delete(&service).await;
    harness.gone(&service).await;
    stage.assert_empty().await;
    assert_eq!(stage.certificates().await.len(), 0);
    let (_, functions) = stage.aws.rest("lambda", "GET", "/2015-03-31/functions", None).await;
    assert_eq!(functions["Functions"], json!([]));
}

/// The permission was for paths of an HTTP API, which no route but `$default` of a WebSocket API has.
#[tokio::test(flavor = "multi_thread")]
async fn websocket_service_is_invoked_by_its_path_and_allowed_for_every_route() {
    let stage = Stage::start("100000000020").await;
    let (harness, aws) = (&stage.harness, &stage.aws);
    let _composer = serve(&stage).await;
    let place = service("chat");
    let spec = json!({"name": "chat", "code": {"s3Bucket": "tubi-code", "s3Key": "code.zip"}, "runtime": "python3.12",
        "handler": "main.handler", "architecture": "x86_64",
        "api": {"protocol": "WEBSOCKET", "routes": ["$connect", "$default", "say"]}});
    harness.apply(&place, "TubiLambdaService", json!({}), spec).await;
    let active = harness.eventually(&place, |object| object["status"]["state"] == "ACTIVE").await;
    assert!(active["status"]["httpEndpoint"].is_string());
    let (_, apis) = aws.rest("apigateway", "GET", "/v2/apis", None).await;
    let apis = apis["items"].as_array().expect("APIs");
    let id =
        apis.iter().find(|api| api["name"] == "chat").expect("the API")["apiId"].as_str().expect("an id");
    let parts =
        async |part: &str| aws.rest("apigateway", "GET", &format!("/v2/apis/{id}/{part}"), None).await.1;
    let function = active["status"]["functionArn"].as_str().expect("an ARN");
    let path =
        format!("arn:aws:apigateway:us-east-1:lambda:path/2015-03-31/functions/{function}/invocations");
    assert_eq!(parts("integrations").await["items"][0]["integrationUri"], json!(path));
    let routes = parts("routes").await;
    let mut keys: Vec<&str> = routes["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|route| route["routeKey"].as_str())
        .collect();
    keys.sort_unstable();
    assert_eq!(keys, ["$connect", "$default", "say"]);
    assert_eq!(parts("stages").await["items"][0]["stageName"], "live");
    let (_, policy) = aws.rest("lambda", "GET", "/2015-03-31/functions/chat/policy", None).await;
    let policy: Value = serde_json::from_str(policy["Policy"].as_str().expect("a policy")).expect("a policy");
    let statements = policy["Statement"].as_array().expect("statements");
    let source = format!("arn:aws:execute-api:us-east-1:100000000020:{id}/*/*");
    assert_eq!(statements.len(), 1, "{policy}");
    assert!(statements[0].to_string().contains(&format!("\"{source}\"")), "{policy}");
    harness.delete(&place).await;
    harness.gone(&place).await;
    let (_, functions) = aws.rest("lambda", "GET", "/2015-03-31/functions", None).await;
    assert_eq!(functions["Functions"], json!([]));
}

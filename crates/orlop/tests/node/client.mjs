// What people do with @kubernetes/client-node.
import assert from 'node:assert/strict';
import * as k8s from '@kubernetes/client-node';

const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);
const namespace = 'default';

const configMap = (name, data, labels) => ({ metadata: { name, labels }, data });
const code = async (promise) => promise.then(() => 200, (error) => error.code);

// Waits for a condition, with a deadline.
async function eventually(what, condition) {
  const deadline = Date.now() + 20_000;
  while (!condition()) {
    assert(Date.now() < deadline, `${what} did not happen`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

async function objects() {
  const made = await core.createNamespacedConfigMap({ namespace, body: configMap('a', { x: '1' }, { app: 'web' }) });
  assert(made.metadata.uid && made.metadata.creationTimestamp instanceof Date);
  assert.equal(await code(core.createNamespacedConfigMap({ namespace, body: configMap('a') })), 409);
  assert.equal(await code(core.readNamespacedConfigMap({ name: 'nothing', namespace })), 404);
  made.data.x = '2';
  await core.replaceNamespacedConfigMap({ name: 'a', namespace, body: made });
  assert.equal(await code(core.replaceNamespacedConfigMap({ name: 'a', namespace, body: made })), 409);

  for (const [strategy, body] of [
    [k8s.PatchStrategy.JsonPatch, [{ op: 'add', path: '/data/y', value: '3' }]],
    [k8s.PatchStrategy.MergePatch, { data: { x: null } }],
    [k8s.PatchStrategy.StrategicMergePatch, { data: { z: '4' } }],
  ]) {
    await core.patchNamespacedConfigMap({ name: 'a', namespace, body }, k8s.setHeaderOptions('Content-Type', strategy));
  }
  assert.deepEqual((await core.readNamespacedConfigMap({ name: 'a', namespace })).data, { y: '3', z: '4' });

  const generic = k8s.KubernetesObjectApi.makeApiClient(config);
  const applied = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'applied', namespace }, data: { a: '1' } };
  const apply = (manager, force, data) =>
    generic.patch({ ...applied, data }, undefined, undefined, manager, force, k8s.PatchStrategy.ServerSideApply);
  await apply('one', false, { a: '1' });
  assert.equal(await code(apply('two', false, { a: '2' })), 409);
  assert.deepEqual((await apply('two', true, { a: '2' })).data, { a: '2' });

  const found = await core.listNamespacedConfigMap({ namespace, labelSelector: 'app=web', limit: 10 });
  assert.deepEqual(found.items.map((item) => item.metadata.name), ['a']);
  const container = { name: 'c', image: 'i' };
  const template = { metadata: { labels: { a: 'b' } }, spec: { containers: [container] } };
  const body = { metadata: { name: 'web' }, spec: { selector: { matchLabels: { a: 'b' } }, template } };
  assert.equal((await apps.createNamespacedDeployment({ namespace, body })).spec.replicas, 1);
  const scale = await apps.readNamespacedDeploymentScale({ name: 'web', namespace });
  scale.spec.replicas = 3;
  await apps.replaceNamespacedDeploymentScale({ name: 'web', namespace, body: scale });
  assert.equal((await apps.readNamespacedDeployment({ name: 'web', namespace })).spec.replicas, 3);
  await core.deleteNamespacedConfigMap({ name: 'a', namespace });
  assert.equal(await code(core.readNamespacedConfigMap({ name: 'a', namespace })), 404);
}

async function informer() {
  await core.createNamespacedConfigMap({ namespace, body: configMap('before', {}, { app: 'web' }) });
  const seen = [];
  const list = () => core.listNamespacedConfigMap({ namespace, labelSelector: 'app=web' });
  const path = `/api/v1/namespaces/${namespace}/configmaps`;
  const informer = k8s.makeInformer(config, path, list, 'app=web');
  for (const event of ['add', 'update', 'delete']) {
    informer.on(event, (object) => seen.push(`${event} ${object.metadata.name}`));
  }
  informer.on('error', (error) => seen.push(`error ${error}`));
  await informer.start();
  await eventually('the list', () => seen.includes('add before'));
  await core.createNamespacedConfigMap({ namespace, body: configMap('after', {}, { app: 'web' }) });
  await core.createNamespacedConfigMap({ namespace, body: configMap('other', {}) });
  await eventually('the addition', () => seen.includes('add after'));
  const options = k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch);
  await core.patchNamespacedConfigMap({ name: 'after', namespace, body: { data: { x: '1' } } }, options);
  await eventually('the update', () => seen.includes('update after'));
  await core.deleteNamespacedConfigMap({ name: 'after', namespace });
  await eventually('the deletion', () => seen.includes('delete after'));
  assert.deepEqual(seen, ['add before', 'add after', 'update after', 'delete after']);
  assert.equal(informer.get('before', namespace).metadata.name, 'before');
  await informer.stop();

  // A watch of one's own, from a version on.
  const watch = new k8s.Watch(config);
  const version = (await list()).metadata.resourceVersion;
  await core.createNamespacedConfigMap({ namespace, body: configMap('watched', {}, { app: 'web' }) });
  const events = [];
  const controller = await watch.watch(path, { resourceVersion: version, allowWatchBookmarks: true },
    (type, object) => events.push([type, object.metadata.name]), () => {});
  await eventually('the event', () => events.length > 0);
  controller.abort();
  assert.deepEqual(events[0], ['ADDED', 'watched']);
}

await { objects, informer }[process.argv[2]]();
console.log('done');
process.exit(0);

declare module "virtual:land" {
  const rings: number[][];
  export default rings;
}
